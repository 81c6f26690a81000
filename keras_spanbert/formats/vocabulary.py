"""Reads a checkpoint's vocabulary and added tokens, and decides whether text is lower-cased."""

import os
import re

from keras_spanbert import cache, files

_SPECIAL = re.compile(r"\[.*\]")
# Every vocabulary has these. Whether they are found in texts is an argument of the tokenizer.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The files of a folder that are read here.
VOCABULARY_FILES = (
    "vocab.txt", "tokenizer.json", "tokenizer_config.json", "added_tokens.json",
    "special_tokens_map.json",
)  # fmt: skip


def read_vocabulary(path: str) -> list[str]:
    """Returns the tokens of a `vocab.txt` or a `tokenizer.json`, in the order of their IDs."""
    path = cache.local_copy(path)
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


def read_added_tokens(
    path: str, tokens: list[str], num_embeddings: int | None = None
) -> tuple[dict[str, bool], list[str]]:
    """Reads the added tokens of a folder or a `tokenizer.json`.

    `tokens` is the vocabulary, with or without them. Tokens without an embedding are left out.
    Returns a dict from the tokens, in the order of their ids, to whether a text must contain them
    exactly, before it is normalized; and sentences for the user.
    """
    path = cache.local_copy(path)
    ids = {token: i for i, token in enumerate(tokens)}
    added, left_out, notes = {}, [], []
    for entry in sorted(_entries(path), key=lambda entry: (entry["id"] is None, entry["id"] or 0)):
        token, number = entry["content"], entry["id"]
        if token in SPECIAL_TOKENS:
            continue
        expected = ids.setdefault(token, len(ids))
        if number not in (None, expected):
            raise ValueError(
                f"{path}: an added token must have its id in the vocabulary, or the next one after "
                f"it, which is {expected} for {token!r}. Received: {number}"
            )
        if num_embeddings is not None and expected >= max(num_embeddings, len(tokens)):
            left_out.append(token)
            continue
        is_exact = not entry.get("normalized", not entry.get("special", False))
        added[token] = is_exact or added.get(token, False)
        if entry.get("single_word"):
            notes.append(f"Warning: the added token {token!r} is found inside of words too")
    if left_out:
        notes.append(f"Warning: added tokens without an embedding are left out: {left_out[:5]}")
    return added, notes


def _entries(path):
    """Returns dicts with `content`, `id` (`None` if a file has none) and settings."""

    def read(name):
        is_file = path.endswith(".json") and name == "tokenizer.json"
        file = path if is_file else os.path.join(path, name)
        return files.read_json(file) if os.path.isfile(file) else {}

    settings, found = read("tokenizer_config.json"), []
    try:
        found += [{"id": -1, **entry} for entry in read("tokenizer.json").get("added_tokens") or ()]
        for number, entry in (settings.get("added_tokens_decoder") or {}).items():
            found.append({**entry, "id": int(number) if number.isdecimal() else -1})
        found += [
            {"content": token, "id": number} for token, number in read("added_tokens.json").items()
        ]
        for source in [read("special_tokens_map.json"), settings]:
            for token in source.get("additional_special_tokens") or ():
                content = token["content"] if isinstance(token, dict) else token
                found.append({"content": content, "id": None, "special": True})
    except (AttributeError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} must list added tokens as transformers does. {reason}") from None
    for entry in found:
        token, number = entry.get("content"), entry["id"]
        is_id = number is None or (type(number) is int and number >= 0)
        if not isinstance(token, str) or not token or not is_id:
            raise ValueError(
                f"{path}: an added token must be a string with an id of 0 or more. Received: "
                f"{token!r} with the id {number!r}"
            )
    return found


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
        rule = "lower-casing must be true or false"
        raise ValueError(f"{os.path.join(folder, name)}: {rule}. Received: {lowercase!r}")
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


def read_tokenizer_file(path: str, lowercase: bool) -> tuple[list[str], dict[str, bool]]:
    """Returns the vocabulary and the added tokens of a `vocab.txt` or `tokenizer.json`.

    Raises `ValueError` if it does not treat upper-case letters as `lowercase` says.
    """
    tokens = read_vocabulary(path)
    normalizer = files.read_json(path).get("normalizer") if path.endswith(".json") else None
    theirs = normalizer.get("lowercase") if isinstance(normalizer, dict) else None
    if theirs not in (None, lowercase):
        raise ValueError(
            f"`lowercase` (--lowercase) must be {theirs}, as in {path}. Received: {lowercase}"
        )
    added, _ = read_added_tokens(path, tokens)
    known = set(tokens)
    return [*tokens, *(token for token in added if token not in known)], added


def find_vocabulary(
    folder: str, vocabulary: str | None = None, num_embeddings: int | None = None
) -> tuple[dict, list[str]]:
    """Returns arguments of the tokenizer, from a folder or a file, and sentences for the user.

    Without a vocabulary, there are no arguments.
    """
    takes = ("", *VOCABULARY_FILES).__contains__  # A folder may have large files too.
    path = place = cache.local_copy(vocabulary or folder, takes)
    if os.path.isdir(place):
        paths = [os.path.join(place, name) for name in ["vocab.txt", "tokenizer.json"]]
        path = next(filter(os.path.isfile, paths), None)
    if path is None:
        return {}, ["No tokenizer: neither vocab.txt nor tokenizer.json exists"]
    tokens = read_vocabulary(path)
    # As in transformers, the last of equal tokens is found in texts.
    last = {token: number for number, token in enumerate(tokens)}
    repeated = [number for number, token in enumerate(tokens) if last[token] != number]
    for number in repeated:
        tokens[number] = f"[repeated {number}]"
    added, added_notes = read_added_tokens(place, tokens, num_embeddings)
    if repeated:
        added_notes.append(
            f"Warning: the vocabulary repeats tokens. Their last IDs are used, and the first ones, "
            f"such as {repeated[0]}, are not"
        )
    # Added tokens do not show whether a model is cased.
    lowercase, notes = decide_lowercase(folder, tokens)
    all_tokens = [*dict.fromkeys([*tokens, *added])]
    arguments = {"vocabulary": all_tokens, "added_tokens": added, "lowercase": lowercase}
    return arguments, notes + added_notes
