"""What each device did: its use, idle time, launches, queues, copies, sequences of kernels."""
