"""`python -m paddle_nezha` is `paddle-nezha`."""

import sys

from paddle_nezha.cli import main

sys.exit(main())
