"""Reads a checkpoint's vocabulary, and decides whether text is converted to lower case."""

import os
import re

from keras_spanbert import cache, files
from keras_spanbert.formats.added_tokens import read_added_tokens

_SPECIAL = re.compile(r"\[.*\]")


def read_vocabulary(path: str) -> list[str] | None:
    """Returns the tokens of a `vocab.txt` or a `tokenizer.json`, in the order of their IDs.

    `path` is a file, or a folder that may hold one. If it has neither, returns `None`.
    """
    path = cache.local_copy(path)
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in ["vocab.txt", "tokenizer.json"]]
        found = [name for name in found if os.path.isfile(name)]
        return read_vocabulary(found[0]) if found else None
    if path.endswith(".json"):
        model = files.read_json(path).get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if not isinstance(vocabulary, dict) or model.get("type", "WordPiece") != "WordPiece":
            kind = model.get("type") if isinstance(model, dict) else model
            raise ValueError(f"{path} must have a WordPiece vocabulary. Received: {kind!r}")
        tokens = sorted(vocabulary, key=vocabulary.get)
        if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
            raise ValueError(f"{path} must number its tokens from 0 to {len(tokens) - 1}")
        return tokens
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            return [line.rstrip("\r\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8. Received: {error}") from None


def decide_lowercase(folder: str, tokens) -> tuple[bool, list[str]]:
    """Returns whether text must be converted to lower case, and sentences that give the reason."""
    upper = next((t for t in tokens if t != t.lower() and not _SPECIAL.fullmatch(t)), None)
    settings, name = {}, "tokenizer_config.json"
    if os.path.isfile(os.path.join(folder, name)):
        settings = files.read_json(os.path.join(folder, name))
    lowercase = settings.get("do_lower_case")
    if lowercase is None and os.path.isfile(os.path.join(folder, "tokenizer.json")):
        name = "tokenizer.json"
        normalizer = files.read_json(os.path.join(folder, name)).get("normalizer")
        settings = normalizer if isinstance(normalizer, dict) else {}
        lowercase = settings.get("lowercase")
    if lowercase not in (None, True, False):
        raise ValueError(
            f"{os.path.join(folder, name)}: lower-casing must be true or false. "
            f"Received: {lowercase!r}"
        )
    if lowercase is None:
        if upper is None:
            return True, ["Uncased: no token of the vocabulary has an upper-case letter"]
        return False, [f"Cased: the vocabulary has upper-case letters, for example {upper!r}"]
    notes = [f"{'Uncased' if lowercase else 'Cased'}, according to {name}"]
    if lowercase and upper is not None:
        notes.append(
            f"Warning: {name} asks for lower case, but the vocabulary has upper-case letters, "
            f"for example {upper!r}; if the model is cased, turn off lower-casing there"
        )
    if settings.get("strip_accents") not in (None, lowercase):
        notes.append(
            f"Warning: {name} sets strip_accents differently from lower-casing, which is not "
            f"supported: accents are {'stripped' if lowercase else 'kept'}"
        )
    for key in ["tokenize_chinese_chars", "handle_chinese_chars"]:
        if settings.get(key) is False:
            notes.append(
                f"Warning: {name} sets {key} to false, which is not supported: Chinese "
                "characters are tokens of their own"
            )
    return lowercase, notes


def find_vocabulary(
    folder: str, vocabulary: str | None = None, num_embeddings: int | None = None
) -> dict:
    """Returns the arguments of a `Checkpoint` about its tokenizer, from a folder or a file."""
    tokens = read_vocabulary(vocabulary or folder)
    if tokens is None:
        return {"notes": ["No tokenizer: neither vocab.txt nor tokenizer.json exists"]}
    added, added_notes = read_added_tokens(vocabulary or folder, tokens, num_embeddings)
    # Added tokens do not show whether a model is cased.
    lowercase, notes = decide_lowercase(folder, tokens)
    known = set(tokens)
    return {
        "vocabulary": tokens + [token for token in added if token not in known],
        "added_tokens": added,
        "lowercase": lowercase,
        "notes": notes + added_notes,
    }
