"""Questions with contexts and answers, checked as they are read."""

import collections
import logging
import os

import keras

from keras_spanbert.models.strings import well_formed

Examples = collections.namedtuple("Examples", ["ids", "questions", "contexts", "answers", "golds"])


class ExamplesReader:
    """Collects the questions of files, and what is wrong with them.

    Args:
        strict: bool. Whether an answer that is not at its place is an error.
        for_training: bool. Whether to leave such questions out.
    """

    def __init__(self, strict: bool, for_training: bool):
        self.strict = strict
        self.for_training = for_training
        self.examples = Examples([], [], [], [], [])
        self._seen = set()
        self._misplaced = []

    def add(self, place: str, name: str, question: str, context, answer, golds) -> None:
        """Adds a question, found at `place`.

        Args:
            place: string, for messages.
            name: string, its id.
            question: string.
            context: string.
            answer: `{"text", "answer_start"}` or `None`, to train with.
            golds: list of strings, to score with.
        """
        place = f"{place} (id {well_formed(name)})"
        check_text(place, id=[name], question=[question], context=[context], answers=golds)
        if name in self._seen:
            raise ValueError(f"{place}: an id may stand once. Received: {name!r} again")
        self._seen.add(name)
        if not question.strip() or not context.strip():
            raise ValueError(
                f"{place}: question and context must not be empty. Received: {question!r}"
            )
        if answer is not None and self.for_training:
            text, at = answer["text"], answer["answer_start"]
            if at < 0 or not text or context[at : at + len(text)] != text:
                self._misplaced.append(f"{place}: {text!r} is not at {at}")
                if self.strict:
                    raise ValueError(
                        f"An answer must be at its place. Received: {self._misplaced[0]}"
                    )
                return
        for values, value in zip(self.examples, [name, question, context, answer, golds]):
            values.append(value)

    def finish(self, paths) -> Examples:
        """The `Examples`, with a warning that counts what was left out."""
        if self._misplaced:
            logging.getLogger("keras_spanbert").warning(
                "Left out %d questions whose answers are not at their places, the first %s",
                len(self._misplaced),
                self._misplaced[0],
            )
        if not self.examples.ids:
            raise ValueError(f"{', '.join(map(str, paths))} must hold questions. Received: none")
        return self.examples


def check_text(place: str, **texts) -> None:
    """Raises a ValueError where one of the strings of a list has a lone surrogate."""
    for name, values in texts.items():
        for value in values:
            clean = well_formed(value)
            if clean is not value:
                at = next(i for i, (a, b) in enumerate(zip(value, clean)) if a != b)
                raise ValueError(
                    f"{place}: text must have no lone surrogates, which are halves of characters. "
                    f"Received: {value[at]!r} at character {at} of `{name}`"
                )


def check_some(examples: list, paths) -> list:
    """The examples, of which there are some."""
    if not examples:
        raise ValueError(f"{_shown(paths)} must hold examples. Received: none")
    return examples


def _shown(paths):
    return ", ".join(map(str, as_list(paths)))


def check_ids(examples: list[dict], paths) -> list[dict]:
    """The examples, of which there are some, each with an `id` of its own."""
    ids = collections.Counter(example["id"] for example in check_some(examples, paths))
    twice = next((name for name, n in ids.items() if n > 1), None)
    if twice is not None:
        raise ValueError(f"{_shown(paths)}: an id may stand once. Received: {twice!r} again")
    return examples


def as_list(paths) -> list:
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def field(value, key, place: str, kind):
    """The item `key` of a JSON object, which must be of type `kind`."""
    item = value.get(key) if isinstance(value, dict) else None
    # JSON's true and false are integers to Python.
    if not isinstance(item, kind) or kind is int and isinstance(item, bool):
        raise ValueError(f"{place}: `{key}` must be a {kind.__name__}. Received: {item!r:.80}")
    return item


def download(name: str, files, folder: str) -> str:
    """Fetches one of `files`, `{name: (URL, SHA-256)}`, unless it is in Keras's cache.

    Returns:
        Path of the file.
    """
    if name not in files:
        raise ValueError(f"`name` must be one of {', '.join(files)}. Received: {name}")
    url, checksum = files[name]
    return keras.utils.get_file(
        fname=name.replace("/", "-"),
        origin=url,
        file_hash=checksum,
        hash_algorithm="sha256",
        cache_subdir=os.path.join("datasets", folder),
    )
