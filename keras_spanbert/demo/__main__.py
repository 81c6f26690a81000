"""`python -m keras_spanbert.demo PRESET [PRESET ...]`."""

import sys

from keras_spanbert.demo import main

sys.exit(main())
