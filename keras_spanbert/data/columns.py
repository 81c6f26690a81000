"""One's own CSV, TSV and JSON lines, of which arguments name the columns."""

import math
import os
from collections.abc import Iterator, Sequence

from keras_spanbert.data.choice_examples import choice_example, choice_letter, choice_number
from keras_spanbert.data.conll import check_tag, to_iob2
from keras_spanbert.data.entity_examples import check_entities
from keras_spanbert.data.examples import as_list, check_ids, check_some, check_text
from keras_spanbert.data.relation_examples import example_of_text, relation_example
from keras_spanbert.data.tables import check_header, read_table
from keras_spanbert.data.text_files import read_json_lines

_TABLES = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".jsonlines")
_HINT = " (arguments or flags name others)"


def read_texts(
    paths,
    text: str = "text",
    text_pair: str | None = None,
    label: str = "label",
    id: str | None = None,
    needs_labels: bool = True,
    labels: Sequence[str] | None = None,
    is_regression: bool = False,
    quoted: bool | None = None,
) -> list[dict]:
    """Reads and checks texts, or pairs of them, with a label each.

    Args:
        paths: string or list of strings. Files, plain or gzip, with a header
            (`.csv`, `.tsv`) or of a JSON object a line (`.jsonl`), in UTF-8.
        text: string. The column of the text, which must not be blank. Defaults
            to `"text"`.
        text_pair: string. The column of the second text. Defaults to `None`,
            none.
        label: string. The column of the label. Defaults to `"label"`.
        id: string. The column of an id, which may stand once. Defaults to
            `None`: the number of the row.
        needs_labels: bool. Whether each row must have a label, as to train or to
            score. Defaults to `True`.
        labels: list of strings, those that there may be, as of the training
            set. Defaults to `None`, all.
        is_regression: bool. Whether labels are numbers. Defaults to `False`.
        quoted: bool. Whether cells may stand between `"`. Defaults to `None`:
            those of `.csv` may, those of `.tsv` not. Such a cell may have
            131,072 characters, others any number.

    Returns:
        List of dicts: `id`, `text`, `text_pair` and `label`, as of
        `keras_spanbert.data.glue.read`.

    Raises:
        ValueError: where a file has another ending, no such column, or a
            malformed row (path, line and rule are named), or there are no rows.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_texts("mails.csv", text="body", label="folder")
    ```
    """
    columns, optional = [text, *filter(None, [text_pair, id])], []
    (columns if needs_labels else optional).append(label)
    examples = []
    for place, row in _rows(paths, columns, optional, quoted):
        examples.append(
            {
                "id": _id(row, id, place, len(examples)),
                "text": _text(row, text, place),
                "text_pair": text_pair and _text(row, text_pair, place, may_be_empty=True),
                "label": _label(row, label, place, needs_labels, labels, is_regression),
            }
        )
    return check_ids(examples, paths)


def read_relations(
    paths,
    text: str = "text",
    subject: tuple[str, str] = ("subject_start", "subject_end"),
    object: tuple[str, str] = ("object_start", "object_end"),
    subject_type: str | None = None,
    object_type: str | None = None,
    relation: str = "relation",
    id: str | None = None,
    needs_labels: bool = True,
    relations: Sequence[str] | None = None,
    quoted: bool | None = None,
) -> list[dict]:
    """Reads and checks sentences with a subject and an object, as characters of the text.

    Args:
        paths: see `read_texts`. Files in words and of TACRED's form are for
            `keras_spanbert.data.tacred.read`.
        text: string. The column of the sentence. Defaults to `"text"`.
        subject: pair of strings. The columns of the subject's first character,
            counted from 0, and of the one after its last. Defaults to
            `("subject_start", "subject_end")`.
        object: the same. Defaults to `("object_start", "object_end")`.
        subject_type, object_type: strings. The columns of types, such as
            PERSON. Default to `None`, none.
        relation: string. The column of the relation. Defaults to `"relation"`.
        id, needs_labels, quoted: see `read_texts`.
        relations: list of strings, those that there may be. Defaults to `None`,
            all.

    Returns:
        List of dicts: see `keras_spanbert.data.tacred.read`.

    Raises:
        ValueError: see `read_texts`; and where a span is not in its text.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_relations(
        "sentences.jsonl", subject=("head_start", "head_end"), object=("tail_start", "tail_end")
    )
    ```
    """
    types = {"subj_type": subject_type, "obj_type": object_type}
    columns = [text, *subject, *object, *filter(None, [*types.values(), id])]
    optional = []
    (columns if needs_labels else optional).append(relation)
    examples = []
    for place, row in _rows(paths, columns, optional, quoted):
        spans = [tuple(_integer(row, name, place) for name in span) for span in [subject, object]]
        more = {
            key: name and (_text(row, name, place, True) or None) for key, name in types.items()
        }
        more["relation"] = _label(row, relation, place, needs_labels, relations)
        name = _id(row, id, place, len(examples))
        example = example_of_text(name, _text(row, text, place), *spans, place=place, **more)
        examples.append(relation_example(example, place, needs_labels))
    return check_ids(examples, paths)


def read_choices(
    paths,
    question: str = "question",
    choices: str | Sequence[str] = ("choice0", "choice1", "choice2", "choice3"),
    context: str | None = None,
    label: str = "label",
    id: str | None = None,
    needs_labels: bool = True,
    quoted: bool | None = None,
) -> list[dict]:
    """Reads and checks questions with choices.

    Args:
        paths: see `read_texts`.
        question: string. The column of the question, or of what begins each
            choice. Defaults to `"question"`.
        choices: list of strings, the columns of the choices, of which a row may
            leave the last ones empty; or, for JSON lines, a string, the one
            column that has a list of them. Defaults to
            `("choice0", "choice1", "choice2", "choice3")`.
        context: string. The column of a text that the question is about.
            Defaults to `None`, none.
        label: string. The column of the right choice, as its number from 0 or
            its letter from A. Defaults to `"label"`.
        id, needs_labels, quoted: see `read_texts`.

    Returns:
        List of dicts: see `keras_spanbert.data.swag.read`.

    Raises:
        ValueError: see `read_texts`; and where a row has less than two choices,
            or its label is none of them.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_choices(
        "quiz.csv", choices=["a", "b", "c"], label="right"
    )
    ```
    """
    names = [choices] if isinstance(choices, str) else list(choices)
    columns, optional = [question, *names, *filter(None, [context, id])], []
    (columns if needs_labels else optional).append(label)
    examples = []
    for place, row in _rows(paths, columns, optional, quoted):
        prompt = _text(row, question, place, may_be_empty=True)
        if context:
            prompt = _text(row, context, place), prompt
        if isinstance(choices, str):
            if isinstance(row[choices], str):  # Of a table: blanks part no choices.
                raise ValueError(
                    f"{place}: `{choices}` must be a list of strings, or one column of several, "
                    f"one for each choice. Received: {row[choices]!r:.80}"
                )
            texts = _strings(row, choices, place)
        else:
            texts = [_text(row, name, place, may_be_empty=True) for name in names]
            while texts and not texts[-1].strip():
                texts.pop()
        number, letter = _choice(row.get(label), label, place, needs_labels)
        name = _id(row, id, place, len(examples))
        examples.append(choice_example(name, prompt, texts, number, place, letter=letter))
    return check_ids(examples, paths)


def read_words(
    paths,
    words: str = "words",
    tags: str = "tags",
    needs_labels: bool = True,
    types: Sequence[str] | None = None,
    quoted: bool | None = None,
    entities: bool = True,
) -> list[dict]:
    """Reads and checks sentences of tagged words.

    Args:
        paths: see `read_texts`.
        words: string. The column of the words: a list in JSON lines, elsewhere a
            text with blanks between them. Defaults to `"words"`.
        tags: string. The column of their tags, in the same way. Defaults to
            `"tags"`.
        needs_labels, quoted: see `read_texts`.
        types: list of strings, the types of entities that there may be. Defaults
            to `None`, all.
        entities: bool. Whether tags are of entities: see
            `keras_spanbert.data.conll.read`. Defaults to `True`.

    Returns:
        List of dicts: `words` and `tags`, in IOB2: see
        `keras_spanbert.data.conll.read`.

    Raises:
        ValueError: see `read_texts`; and where tags are not as many as words, or
            one is of another form.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_words("sentences.jsonl", words="tokens")
    ```
    """
    columns, optional = [words], []
    (columns if needs_labels else optional).append(tags)
    examples = []
    for place, row in _rows(paths, columns, optional, quoted):
        texts, labels = _strings(row, words, place), None
        if not texts or not all(text.strip() for text in texts):
            raise ValueError(f"{place}: `{words}` must have words. Received: {texts!r:.80}")
        if needs_labels or row.get(tags):
            labels = _strings(row, tags, place)
            if len(labels) != len(texts):
                raise ValueError(
                    f"{place}: `{tags}` must have a tag for each word. Received: {len(labels)} for "
                    f"{len(texts)} words"
                )
            for tag in labels:
                check_tag(tag, types, place, entities)
            labels = to_iob2(labels) if entities else labels
        examples.append({"words": texts, "tags": labels})
    return check_some(examples, paths)


def read_entities(
    paths,
    text: str = "text",
    entities: str = "entities",
    id: str | None = None,
    types: Sequence[str] | None = None,
) -> list[dict]:
    """Reads and checks texts with entities, as characters of the text.

    Args:
        paths, text, id: see `read_texts`; files of a JSON object a line.
        entities: string. The column of a list of `{"start", "end", "label"}`, in
            characters from 0, with the end excluded. Defaults to `"entities"`.
        types: list of strings, the labels there may be. Defaults to `None`, all.

    Returns:
        List of dicts: `id`, `text`, `entities` and `place`, path and line, for messages.

    Raises:
        ValueError: see `read_texts`; and where an entity is out of place or unknown.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_entities("annotated.jsonl")
    ```
    """
    examples = []
    for place, row in _rows(paths, [text, entities, *filter(None, [id])], [], None):
        content, found = _text(row, text, place), row[entities]
        check_entities(found, content, types, place, entities)
        name = _id(row, id, place, len(examples))
        examples.append({"id": name, "text": content, "entities": found, "place": place})
    return check_ids(examples, paths)


def _rows(paths, columns, optional, quoted) -> Iterator[tuple[str, dict]]:
    """Places and rows of files, by the endings of their names."""
    for path in as_list(paths):
        ending = os.path.splitext(os.fspath(path).removesuffix(".gz"))[1]
        if ending in _TABLES:
            is_quoted = ending == ".csv" if quoted is None else quoted
            delimiter = _TABLES[ending]
            yield from read_table(path, columns, optional, delimiter, is_quoted, hint=_HINT)
        elif ending in _JSON_LINES:
            for place, row in read_json_lines(path):
                if not isinstance(row, dict):
                    raise ValueError(f"{place}: must be a JSON object. Received: {row!r:.80}")
                check_header(list(row), columns, columns, place, _HINT)
                yield place, row
        else:
            raise ValueError(
                f"A file must end in {', '.join([*_TABLES, *_JSON_LINES])}, or in these and .gz. "
                f"Received: {path}"
            )


def _text(row, name, place, may_be_empty=False):
    text = row[name]
    if text is None and may_be_empty:
        return ""
    if not isinstance(text, str) or not (may_be_empty or text.strip()):
        raise ValueError(f"{place}: `{name}` must be a text, not empty. Received: {text!r:.80}")
    check_text(place, **{name: [text]})
    return text


def _strings(row, name, place):
    """A list of strings, or what stands between the blanks of a string."""
    value = row[name]
    value = value.split() if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{place}: `{name}` must be a list of strings. Received: {value!r:.80}")
    check_text(place, **{name: value})
    return value


def _integer(row, name, place):
    value = row[name]
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        value = int(value)
    if type(value) is not int:
        raise ValueError(
            f"{place}: `{name}` must be an integer, which counts characters from 0. Received: "
            f"{value!r:.80}"
        )
    return value


def _id(row, name, place, number):
    if not name:
        return str(number)
    value = row[name]
    return _text({name: str(value) if type(value) is int else value}, name, place)


def _choice(cell, name, place, needs_labels):
    """The number of a choice that is written as such, or as a letter, and the letter."""
    cell = str(cell) if type(cell) is int else cell
    if cell is None or isinstance(cell, str) and (not cell.strip() or cell.strip().isdecimal()):
        return choice_number(cell and cell.strip(), place, needs_labels), None
    if not isinstance(cell, str) or len(cell.strip()) != 1:
        raise ValueError(
            f"{place}: `{name}` must be a choice's number from 0, or its letter from A. Received: "
            f"{cell!r:.80}"
        )
    return choice_letter(cell.strip(), place, needs_labels), cell.strip()


def _label(row, name, place, needs_labels, labels=None, is_regression=False):
    value = row.get(name)
    if value is None or isinstance(value, str) and not value.strip():
        if needs_labels:
            raise ValueError(
                f"{place}: a row to train or score on must have a `{name}`. Received: none"
            )
        return None
    if is_regression:
        return _number(value, name, place)
    value = str(value) if type(value) is int else value
    if not isinstance(value, str):
        raise ValueError(f"{place}: `{name}` must be a string or integer. Received: {value!r:.80}")
    check_text(place, **{name: [value]})
    if labels is not None and value not in labels:
        raise ValueError(
            f"{place}: `{name}` must be one of {', '.join(labels)}. Received: {value!r:.80}"
        )
    return value


def _number(value, name, place):
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place}: `{name}` must be a finite number. Received: {value!r:.80}")
    return number
