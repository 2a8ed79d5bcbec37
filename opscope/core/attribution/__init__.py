"""Attribution, a rule a file: kernel → launch → the op that launched it."""
