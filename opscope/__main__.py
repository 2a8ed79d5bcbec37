"""Run the command ``opscope`` as ``python -m opscope``."""

from opscope.cli import main

if __name__ == "__main__":
    main()
