"""Reads and writes the files of other libraries: settings, tensors and vocabularies."""
