"""DLProf's SQLite databases."""
