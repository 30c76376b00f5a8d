"""`python -m highways`: the same as the command `highways`."""

import sys

from highways.cli import main

sys.exit(main())
