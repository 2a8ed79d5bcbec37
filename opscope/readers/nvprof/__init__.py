"""nvprof's SQLite databases."""
