"""Where the device's time went: in one row, by kind, by range, and without an op."""
