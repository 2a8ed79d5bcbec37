"""The part that runs in the user's program: captures, pushes and pops of ranges, and their two sinks."""
