"""What a device can do at most, which device a trace is of, and what a kernel's name proves."""
