"""Writes, reads and damages files."""

import json


def write(path, content):
    """Writes text, bytes, or a value as JSON. Returns the path."""
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def write_lines(path, values):
    """Writes a JSON value on each line. Returns the path."""
    return write(path, "".join(f"{json.dumps(value)}\n" for value in values))


def flip(path):
    """Changes a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def to_sets(clusters):
    """Returns clusters in an order that does not depend on theirs and that of their mentions."""
    return sorted(sorted(map(tuple, cluster)) for cluster in clusters)


def read_texts(corpus, split="all", order=None):
    """Returns complete documents by joining their pieces."""
    texts, pieces = [], []
    for text, ends_document in corpus.documents(split, order):
        pieces.append(text)
        if ends_document:
            texts.append("".join(pieces))
            pieces = []
    assert not pieces, "the last document does not end"
    return texts
