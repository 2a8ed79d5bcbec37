"""The trace as tables, and the passes over columns and intervals that every room above uses."""
