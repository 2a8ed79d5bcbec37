"""What several adapters need: exchanged attributes, source lines, libraries compiled on first use."""
