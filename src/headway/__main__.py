"""`python -m headway` is `headway`."""

import sys

from headway.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
