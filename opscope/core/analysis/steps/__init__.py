"""Steps and iterations: their times, parts and phases, and which were slow."""
