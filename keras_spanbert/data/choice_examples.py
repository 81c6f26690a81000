"""Questions with choices, checked as they are read."""

import os
import string
from collections.abc import Iterable, Sequence

from keras_spanbert import files
from keras_spanbert.data.examples import check_text


def choice_example(
    name: str,
    prompt: str | tuple[str, str],
    choices: Sequence[str],
    label: int | None,
    place: str,
    allow_empty: bool = False,
    letter: str | None = None,
) -> dict:
    """The example of a question, checked.

    Args:
        name: string, its id.
        prompt: string, or pair of strings, the context and what begins each
            choice.
        choices: list of strings.
        label: int, the number of the right choice, or `None`.
        place: string, which messages begin with.
        allow_empty: bool. Whether a choice may be blank. Defaults to `False`.
        letter: string. The label as it is written, where that is a letter.
            Defaults to `None`.

    Returns:
        Dict: see `keras_spanbert.data.swag.read`.

    Raises:
        ValueError: where there are not two choices, one is blank, the prompt is,
            or the label is none of the choices' numbers.
    """
    texts = [prompt] if isinstance(prompt, str) else prompt
    check_text(place, prompt=texts, choices=choices)
    if not any(text.strip() for text in texts):
        raise ValueError(f"{place}: a question must not be empty. Received: {prompt!r:.80}")
    if len(choices) < 2:
        raise ValueError(
            f"{place}: there must be two choices or more. Received: {len(choices)}, {choices!r:.80}"
        )
    if not allow_empty and not all(choice.strip() for choice in choices):
        raise ValueError(f"{place}: a choice must not be empty. Received: {choices!r:.80}")
    if label is not None and letter and label >= len(choices):
        last = string.ascii_uppercase[len(choices) - 1]
        raise ValueError(
            f"{place}: a label must be a choice's letter, A to {last}. Received: {letter!r}"
        )
    if label is not None and not 0 <= label < len(choices):
        raise ValueError(
            f"{place}: a label must be a choice's number from 0, below {len(choices)}. "
            f"Received: {label}"
        )
    return {"id": name, "prompt": prompt, "choices": list(choices), "label": label}


def choice_number(cell: str | None, place: str, needs_labels: bool) -> int | None:
    """The number of a choice that is written as a number from 0; `None` where there is none."""
    if cell is None or not cell.strip():
        if needs_labels:
            raise ValueError(
                f"{place}: an example to train or score on must have a label. Received: none"
            )
        return None
    if not (cell.isascii() and cell.isdecimal() and len(cell) < 5):
        raise ValueError(
            f"{place}: a label must be a choice's number from 0. Received: {cell!r:.80}"
        )
    return int(cell)


def choice_letter(letter, place: str, needs_labels: bool) -> int | None:
    """The number of a choice that is written as a letter from A."""
    if letter is None or letter == "":
        return choice_number(None, place, needs_labels)
    is_letter = isinstance(letter, str) and len(letter) == 1 and letter in string.ascii_uppercase
    if not is_letter:
        raise ValueError(f"{place}: an answer must be a letter from A. Received: {letter!r:.80}")
    return string.ascii_uppercase.index(letter)


def write_lines(path: str | os.PathLike, examples, predictions, lines: Iterable[str]) -> None:
    """Writes lines, whole or not at all, where `predictions` are choices of the examples."""
    if len(examples) != len(predictions):
        raise ValueError(
            f"`predictions` must be one for each example. Received: {len(predictions)} for "
            f"{len(examples)} examples"
        )
    for example, number in zip(examples, predictions):
        if not hasattr(number, "__index__") or number not in range(len(example["choices"])):
            raise ValueError(
                f"A prediction must be a choice's number from 0, below {len(example['choices'])}. "
                f"Received: {number!r:.80} of {example['id']}"
            )
    with files.replacing(os.fspath(path)) as file:
        file.writelines(f"{line}\n" for line in lines)
