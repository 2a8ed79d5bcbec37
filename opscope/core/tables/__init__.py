"""The trace as tables, and the operations on columns and intervals that all other packages use."""
