"""Reads and writes the tokens that users added to the vocabulary of a Hugging Face tokenizer."""

import os

from keras_spanbert import cache, files

# Every vocabulary has these. Whether they are found in texts is an argument of the tokenizer.
_BUILT_IN = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILE = "added_tokens.json"


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
        if token in _BUILT_IN:
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
        file = os.path.join(path, name) if os.path.isdir(path) else path
        return files.read_json(file) if file.endswith(name) and os.path.isfile(file) else {}

    settings, found = read("tokenizer_config.json"), []
    try:
        found += [{"id": -1, **entry} for entry in read("tokenizer.json").get("added_tokens") or ()]
        for number, entry in (settings.get("added_tokens_decoder") or {}).items():
            found.append({**entry, "id": int(number) if number.isdecimal() else -1})
        found += [{"content": token, "id": number} for token, number in read(FILE).items()]
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
