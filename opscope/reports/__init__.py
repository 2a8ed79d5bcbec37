"""Analysis results as text, files and pages."""
