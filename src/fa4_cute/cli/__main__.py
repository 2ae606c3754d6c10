"""python -m fa4_cute.cli"""

import sys

from . import main

sys.exit(main())
