"""Plugin of pytest for `python -m tests --gpu`: TensorFlow cannot be imported."""

import sys

sys.modules.update(tensorflow=None, tensorflow_text=None)
