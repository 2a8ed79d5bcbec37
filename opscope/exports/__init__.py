"""What a profile is written as for other tools: one format a file."""
