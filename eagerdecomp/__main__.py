"""``python -m eagerdecomp``."""

import sys

from eagerdecomp.cli import main

if __name__ == "__main__":
    sys.exit(main())
