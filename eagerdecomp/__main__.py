"""``python -m eagerdecomp``."""

import sys

from eagerdecomp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
