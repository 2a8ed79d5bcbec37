"""Steps and iterations: what each took, its parts and phases, and which were slow."""
