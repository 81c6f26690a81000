"""Reads and writes files of multiple-choice benchmarks."""

import dataclasses
import functools
import os
import pathlib
import re
import string
from collections.abc import Callable, Sequence

from keras_spanbert import stores
from keras_spanbert.checks import check_paths
from keras_spanbert.data.examples import check, check_label, check_not_empty, field, write_lines
from keras_spanbert.data.tables import read_rows
from keras_spanbert.data.text_files import read_json, read_json_lines
from keras_spanbert.files import ending

_BLANK = re.compile("_+")
_ENDINGS = ("ending0", "ending1", "ending2", "ending3")


@dataclasses.dataclass(frozen=True)
class ChoiceBenchmark:
    """Reads and writes files of a multiple-choice benchmark.

    `keras_spanbert.data` contains:

    - `swag`: the CSV files `train.csv`, `val.csv` and `test.csv`. The test set has
      no labels. The prompt is a pair: the context and the beginning of each choice.
      [Zellers et al. 2018](https://aclanthology.org/D18-1009/).
    - `codah`: files such as `full_data.tsv`, without a header. Their seven columns are separated by
      tabs: letters of a category, which are ignored, the prompt, four endings and the label. Quotes
      are ordinary characters. [Chen et al. 2019](https://aclanthology.org/W19-2008/).
    - `cosmos_qa`: CSV files such as `valid.csv`. The prompt is the pair of context
      and question. [Huang et al. 2019](https://aclanthology.org/D19-1243/).
    - `commonsense_qa`: files of JSON lines such as `train_rand_split.jsonl`. The test set has no
      `answerKey`. [Talmor et al. 2019](https://aclanthology.org/N19-1421/).
    - `race`: JSON files, each an article with its questions, or folders such as `RACE/dev/high`, of
      which all `.txt` files are read, sorted by name. The prompt is the pair of article and
      question. As in the usual readers, a question with one blank, written `_`, becomes four
      sentences with an answer in the blank. These are the choices, and the prompt's question is
      empty. [Lai et al. 2017](https://aclanthology.org/D17-1082/).

    Example:
    ```python
    examples = keras_spanbert.data.swag.read("val.csv")
    context, start = examples[0]["prompt"]
    endings = [f"{start} {ending}" for ending in examples[0]["choices"]]
    ```
    """

    # Function of a path and `needs_labels`. Yields the place, id (blank for the number of the
    # example), prompt, choices and label of each question.
    questions: Callable
    allow_empty: bool = False  # Whether a choice may be blank.
    lettered: bool = False  # Whether labels are letters from A instead of numbers from 0.
    submission: str | None = None  # A line of a submission, with `{id}`, `{number}` and `{letter}`.
    header: Sequence[str] = ()  # The first lines of a submission.

    def read(self, paths, needs_labels: bool = True) -> list[dict]:
        """Reads and checks files, plain or gzip.

        Args:
            paths: string or list of strings.
            needs_labels: bool. Whether each question must have a label. Defaults to `True`.

        Returns:
            List of dicts, one per question. All readers of multiple-choice data
            return this format: `id`; `prompt`, a string, or a pair of strings, the
            context and the question or beginning of each choice; `choices`, a list
            of strings; `label`, the number of the right choice from 0, or `None`.

        Raises:
            ValueError: if a file has another format, a question is malformed (the
                message has path, line or question, and rule), or there are none.
        """
        examples = []
        for path in check_paths("paths", paths):
            for place, name, *question in self.questions(path, needs_labels):
                name = name or str(len(examples))
                rules = needs_labels, self.allow_empty, self.lettered
                examples.append(choice_example(place, name, *question, *rules))
        return check_not_empty(examples, paths)

    def write_predictions(self, path: str | os.PathLike, examples, predictions) -> None:
        """Writes predictions in the format of the benchmark's submissions, atomically.

        - `swag`: CSV with a column of ids, which has no name, and a column `pred`.
        - `cosmos_qa`: the number of the choice.
        - `commonsense_qa`: the id and the letter of the choice, separated by a comma.

        Args:
            path: string.
            examples: list of dicts from `read`.
            predictions: list or array with the number of the choice for each example.

        Raises:
            ValueError: if the benchmark has no submissions, the numbers of predictions and examples
                differ, or one is not the number of a choice.
            OSError: if the file cannot be written.

        Example:
        ```python
        examples = keras_spanbert.data.swag.read("test.csv", needs_labels=False)
        keras_spanbert.data.swag.write_predictions("pred.csv", examples, [0] * len(examples))
        ```
        """
        if self.submission is None:
            raise ValueError(
                "Only `swag`, `cosmos_qa` and `commonsense_qa` have a submission format. Received: "
                "another benchmark"
            )

        def line(example, number, place):
            count = len(example["choices"])
            is_number = hasattr(number, "__index__") and number in range(count)
            rule = f"a prediction must be a choice's number from 0, below {count}"
            check(is_number, f"{place}, of {example['id']}", rule, number)
            letter = string.ascii_uppercase[number : number + 1]
            return self.submission.format(id=example["id"], number=number, letter=letter)

        write_lines(path, examples, predictions, line, self.header)


def choice_example(
    place: str,
    id: str,
    prompt: str | tuple[str, str],
    choices: Sequence[str],
    label,
    needs_labels: bool,
    allow_empty: bool = False,
    lettered: bool | None = None,
) -> dict:
    """Checks a question and returns it as an example: see `ChoiceBenchmark.read`.

    `label` is as in the file, `None` or blank for none: a letter if `lettered`, a number if not,
    and either if that is `None`. `allow_empty` allows blank choices.
    """
    texts = [prompt] if isinstance(prompt, str) else prompt
    check(any(text.strip() for text in texts), place, "a question must not be empty", prompt)
    check(len(choices) > 1, place, "there must be two or more choices", choices)
    are_filled = allow_empty or all(choice.strip() for choice in choices)
    check(are_filled, place, "a choice must not be empty", choices)
    label = label.strip() if isinstance(label, str) else label
    label = None if label == "" else label
    check_label(place, label, needs_labels)
    count, letters = len(choices), string.ascii_uppercase[: len(choices)]
    forms = [
        (f"number from 0, below {count}", map(str, range(count))),
        (f"letter, A to {letters[-1]}", letters),
    ]
    forms = forms if lettered is None else [forms[lettered]]
    known = {name: number for _, names in forms for number, name in enumerate(names)}
    # In Python, True is an integer too.
    number = known.get(str(label)) if type(label) in (int, str) else None
    rule = f"a label must be a choice's {', or '.join(rule for rule, _ in forms)}"
    check(label is None or number is not None, place, rule, label)
    return {"id": id, "prompt": prompt, "choices": list(choices), "label": number}


def _read_table(path, needs_labels, prompt, choices=_ENDINGS, id="", **format):
    """Yields the questions of a table. `prompt` has the names of one column or of two."""
    # SWAG's column of row numbers has no name.
    columns = [*filter(None, [id]), *prompt, *choices, *(["label"] if needs_labels else [])]
    for place, row in read_rows(path, columns, **format):
        texts = tuple(row[column] for column in prompt)
        texts = texts if len(texts) > 1 else texts[0]
        yield place, row.get(id), texts, [row[choice] for choice in choices], row.get("label")


def _read_commonsense_qa(path, needs_labels):
    """Yields the questions of CommonsenseQA."""
    for place, value in read_json_lines(path):
        name, question = field(value, "id", place, str), field(value, "question", place, dict)
        stem = field(question, "stem", place, str)
        choices = field(question, "choices", place, list)
        texts = [field(choice, "text", place, str) for choice in choices]
        letters = [field(choice, "label", place, str) for choice in choices]
        are_right = letters == list(string.ascii_uppercase[: len(letters)])
        check(are_right, place, "the choices' labels must be letters from A, in order", letters)
        yield place, name, stem, texts, value.get("answerKey")


def _read_race(path, needs_labels):
    """Yields the questions of an article of RACE, or of all articles in a folder."""
    found = [path]
    if stores.kind(path) == "directory":
        texts = [name for name in stores.names(path) if ending(name) == ".txt"]
        found = [stores.join(path, name) for name in sorted(texts, key=pathlib.PurePath)]
    if not found:
        raise ValueError(f"A folder of RACE must contain .txt files. Received: {path}")
    for file in found:
        value = read_json(file)
        article, name = (field(value, key, file, str) for key in ["article", "id"])
        questions, options = (field(value, key, file, list) for key in ["questions", "options"])
        is_labelled = needs_labels or value.get("answers") is not None
        answers = field(value, "answers", file, list) if is_labelled else [None] * len(questions)
        lengths = [len(questions), len(options), len(answers)]
        rule = "`questions`, `options` and `answers` must have the same length"
        check(len({*lengths}) == 1, file, rule, lengths)
        for number, (question, choices, answer) in enumerate(zip(questions, options, answers)):
            place = f"{file}, question {number}"
            are_texts = isinstance(choices, list) and all(isinstance(c, str) for c in choices)
            rule = "a question must be a string, its options a list of strings"
            check(isinstance(question, str) and are_texts, place, rule, (question, choices))
            before, *after = _BLANK.split(question)
            if len(after) == 1:
                question, choices = "", [before + choice + after[0] for choice in choices]
            yield place, f"{name}-{number}", (article, question), choices, answer


_read_csv = functools.partial(_read_table, delimiter=",", quoted=True)
_swag = functools.partial(_read_csv, prompt=["sent1", "sent2"])
_codah = functools.partial(
    _read_table, prompt=["prompt"], header=["category", "prompt", *_ENDINGS, "label"]
)
_cosmos_qa = functools.partial(
    _read_csv,
    id="id",
    prompt=["context", "question"],
    choices=["answer0", "answer1", "answer2", "answer3"],
)
swag = ChoiceBenchmark(_swag, submission="{id},{number}", header=(",pred",))
codah = ChoiceBenchmark(_codah)
cosmos_qa = ChoiceBenchmark(_cosmos_qa, submission="{number}")
commonsense_qa = ChoiceBenchmark(_read_commonsense_qa, lettered=True, submission="{id},{letter}")
# The usual readers of RACE accept empty answers.
race = ChoiceBenchmark(_read_race, lettered=True, allow_empty=True)
