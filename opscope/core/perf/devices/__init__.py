"""The peak rates of devices, the identification of a trace's device, and what kernel names prove."""
