"""The timeline: lanes of slices, and pictures of any window of them that leave nothing out unsaid."""
