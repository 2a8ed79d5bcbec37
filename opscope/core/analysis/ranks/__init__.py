"""What many ranks do together: collectives, who is late, which rank is unlike the others."""
