"""The trace as tables, and the passes over columns and intervals that all other packages use."""
