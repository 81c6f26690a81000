"""What `export_saved_model` runs under TensorFlow, for models of other backends."""

import sys

from keras_spanbert.serving.saved_model import main

if __name__ == "__main__":
    main(*sys.argv[1:])
