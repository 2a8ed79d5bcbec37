"""The activity of each device: use, idle time, launches, queues, copies, sequences of kernels."""
