"""Where the device's time went: in total, by kind, by range, and without an op."""
