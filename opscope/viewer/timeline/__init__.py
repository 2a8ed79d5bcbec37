"""The timeline: lanes of slices, and pictures of any window of them that report all they leave out."""
