"""What several adapters need: exchanged attributes, source lines, libraries that are compiled on first use."""
