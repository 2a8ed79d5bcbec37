"""``python -m opscope``: the same as the command ``opscope``."""

from opscope.cli import main

if __name__ == "__main__":
    main()
