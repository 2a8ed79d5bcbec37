"""The timeline: lanes of slices, and pictures of any window of time, which report everything that they
leave out."""
