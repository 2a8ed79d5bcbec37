"""The analyses of a profile, one per file: each takes tables and returns tables."""
