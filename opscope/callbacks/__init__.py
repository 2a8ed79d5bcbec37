"""Step ranges driven by a framework's own callbacks."""
