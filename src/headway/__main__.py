"""`python -m headway` is `headway`."""

import sys

from headway.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
