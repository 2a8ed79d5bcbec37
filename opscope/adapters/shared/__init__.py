"""Code that several adapters share: patched attributes, source lines, libraries compiled on first use."""
