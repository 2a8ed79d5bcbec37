"""Read serialised HLO modules into calls, without XLA or a protobuf library."""
