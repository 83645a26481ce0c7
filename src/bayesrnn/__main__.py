"""`python -m bayesrnn`."""

import sys

from bayesrnn.cli import main

sys.exit(main())
