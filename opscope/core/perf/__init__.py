"""The performance model: FLOPs and bytes of an op from its shapes."""
