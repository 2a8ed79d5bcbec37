"""The formats that a profile can be exported to for other tools: one format per file."""
