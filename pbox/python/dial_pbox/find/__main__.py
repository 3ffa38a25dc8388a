"""``python -m dial_pbox.find``."""

import sys

from dial_pbox.find.command import main

sys.exit(main())
