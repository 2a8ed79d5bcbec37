"""Memory: its peak, its blocks, and which ops, layers and steps hold them."""
