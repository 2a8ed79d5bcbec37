"""Attribution finds the op that launched each kernel: kernel → launch → op. Each rule has its own file."""
