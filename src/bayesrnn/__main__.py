"""`python -m bayesrnn`."""

import sys

from bayesrnn.cli.main import main

sys.exit(main())
