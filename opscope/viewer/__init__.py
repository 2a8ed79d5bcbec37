"""The viewer: pages about a profile, served on loopback or written into one file."""
