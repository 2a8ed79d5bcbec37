"""HLO modules, as XLA serialises them, read into calls without XLA or a protobuf library."""
