"""The detectors. Each module here defines one as ``DETECTOR``; nothing else lists it."""
