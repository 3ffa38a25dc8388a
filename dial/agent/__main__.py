"""``python -m dial.agent``."""

import sys

from dial.agent.command import main

sys.exit(main(sys.argv[1:]))
