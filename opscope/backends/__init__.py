"""How a capture is made."""
