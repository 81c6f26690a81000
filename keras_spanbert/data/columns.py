"""Reads CSV, TSV and JSON lines files with any column names, which arguments set."""

from collections.abc import Sequence

from keras_spanbert.checks import check_in
from keras_spanbert.data.annotations import OBJECT_LABEL, SUBJECT_LABEL, entity_rows, relation_rows
from keras_spanbert.data.choices import choice_example
from keras_spanbert.data.conll import check_tag, to_iob2
from keras_spanbert.data.examples import check, check_known, warn_left_out
from keras_spanbert.data.tables import (
    as_id,
    as_optional_text,
    as_span,
    as_strings,
    as_text,
    check_not_printed,
    is_blank,
    label_of,
    read_examples,
    refuse,
)
from keras_spanbert.data.tacred import example_of_text, relation_example


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
    label_separator: str | None = None,
    skip_label: str | None = None,
) -> list[dict]:
    """Reads and checks texts or pairs of texts, with one label or several.

    Args:
        paths: string or list of strings. UTF-8 files, plain or gzip: tables with a
            header (`.csv`, `.tsv`) or one JSON object per line (`.jsonl`).
        text: string. The column of the text, which must not be blank. Defaults to `"text"`.
        text_pair: string. The column of the second text. Defaults to `None`.
        label: string. The column of the label. All readers strip blanks around
            labels. Defaults to `"label"`.
        id: string. The column of a unique id. Defaults to `None`: the number of the row.
        needs_labels: bool. Whether each row must have a label, which training and
            scoring need. Defaults to `True`.
        labels: list of strings. The allowed labels. Defaults to `None`, all.
        is_regression: bool. Whether labels are numbers. Defaults to `False`.
        quoted: bool. Whether cells may be quoted with `"`. Defaults to `None`:
            only in `.csv` files, with a warning if a cell of a `.tsv` file looks quoted.
        label_separator: string. If given, a row has any number of labels: a list
            in JSON lines, or a text with this separator, such as `"a|b"` for `"|"`. An empty text
            means no labels. Not with `is_regression`. Defaults to `None`: a row has one label.
        skip_label: string. The label of rows without a gold label, such as `"-"` in
            SNLI and MultiNLI. If labels are needed, these rows are left out, and the
            log counts them. Otherwise their label is `None`. Defaults to `None`.

    Returns:
        List of dicts with `id`, `text`, `text_pair` and `label`, as from
        `keras_spanbert.data.glue.read`. With `label_separator`, `label` is a list.

    Raises:
        ValueError: if a file has another ending, lacks a column or has a malformed row (the message
            has path, line and rule), a label is a list printed as text, such as `"['a', 'b']"`,
            there are no rows, or `label_separator` is empty or given with `is_regression`.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_texts("mails.csv", text="body", label="folder")
    ```
    """
    is_right = label_separator is None or label_separator and not is_regression
    rule = "a nonempty text, and None for a regression"
    check_in("label_separator", label_separator, is_right, rule)
    skipped = []  # Places.

    def build(example, place):
        if example["label"] is not None or not needs_labels or skip_label is None:
            return example
        skipped.append(place)
        return None

    as_label = label_of(needs_labels, labels, is_regression, label_separator, skip_label)
    columns = {
        "id": (id, as_id),
        "text": (text, as_text),
        "text_pair": (text_pair, as_optional_text),
        "label": (label, as_label),
    }
    examples = read_examples(paths, columns, build, () if needs_labels else [label], quoted)
    warn_left_out(skipped, "row", f"with the label {skip_label}")
    return examples


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
    """Reads and checks sentences with the positions of a subject and an object in characters.

    In exports of doccano, Label Studio and Prodigy, see `read_entities`, each link of
    two entities is an example, with the labels of the entities as types. The link goes
    from the subject to the object. Entities without a link between them give no
    example: to train with `no_relation`, annotate it.

    Args:
        paths: see `read_texts`. `keras_spanbert.data.tacred.read` reads TACRED's
            format, with positions in words.
        text: string. The column of the sentence. Defaults to `"text"`.
        subject, object: pairs of strings. The columns of the first character,
            counted from 0, and of the one after the last. Default to
            `("subject_start", "subject_end")` and `("object_start", "object_end")`.
        subject_type, object_type: strings. The columns of types, such as PERSON. Default to `None`.
        relation: string. The column of the relation. Defaults to `"relation"`.
        id, needs_labels, quoted: see `read_texts`.
        relations: list of strings. The allowed relations. Defaults to `None`, all.

    Returns:
        List of dicts: see `keras_spanbert.data.tacred.read`.

    Raises:
        ValueError: see `read_texts`. Also if a span is not in its text.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_relations(
        "sentences.jsonl", subject=("head_start", "head_end"), object=("tail_start", "tail_end")
    )
    ```
    """

    def build(example, place):
        return relation_example(example_of_text(**example, place=place), place, needs_labels)

    columns = {
        "id": (id, as_id),
        "text": (text, as_text),
        "subject": (tuple(subject), as_span),
        "object": (tuple(object), as_span),
        "subj_type": (subject_type or SUBJECT_LABEL, as_optional_text),
        "obj_type": (object_type or OBJECT_LABEL, as_optional_text),
        "relation": (relation, label_of(needs_labels, relations)),
    }
    optional = [SUBJECT_LABEL, OBJECT_LABEL, *([] if needs_labels else [relation])]

    def rows(path):
        return relation_rows(path, text, [*subject, *object], relation, id)

    return read_examples(paths, columns, build, optional, quoted, rows, [".json"])


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
    """Reads and checks multiple-choice questions.

    Args:
        paths: see `read_texts`.
        question: string. The column of the question, or of the beginning of
            each choice. Defaults to `"question"`.
        choices: list of strings, the columns of the choices. If a row has fewer choices, its last
            columns are empty. For JSON lines also a string, the column with a list of choices.
            Defaults to `("choice0", "choice1", "choice2", "choice3")`.
        context: string. The column of a text that the question refers to. Defaults to `None`.
        label: string. The column of the right choice, as its number from 0 or
            its letter from A. Defaults to `"label"`.
        id, needs_labels, quoted: see `read_texts`.

    Returns:
        List of dicts: see `keras_spanbert.data.swag.read`.

    Raises:
        ValueError: see `read_texts`. Also if a row has fewer than two choices,
            or its label is not one of them.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_choices(
        "quiz.csv", choices=["a", "b", "c"], label="right"
    )
    ```
    """
    is_list = isinstance(choices, str)

    def as_choices(value):
        if is_list and isinstance(value, str):
            check_not_printed(value)
            refuse("be a list of strings; for one column per choice, name two or more", value)
        texts = as_strings([cell or "" for cell in value] if isinstance(value, list) else value)
        while not is_list and texts and is_blank(texts[-1]):
            texts.pop()
        return texts

    def build(example, place):
        question, context = example.pop("question"), example.pop("context")
        prompt = question if context is None else (context, question)
        return choice_example(place, prompt=prompt, needs_labels=needs_labels, **example)

    columns = {
        "id": (id, as_id),
        "question": (question, as_optional_text),
        "context": (context, as_text),
        "choices": (choices if is_list else tuple(choices), as_choices),
        "label": (label, lambda value: value),
    }
    return read_examples(paths, columns, build, () if needs_labels else [label], quoted)


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
        words: string. The column of the words: a list in JSON lines, or a text
            with words separated by blanks. Defaults to `"words"`.
        tags: string. The column of their tags, in the same format. Defaults to `"tags"`.
        needs_labels, quoted: see `read_texts`.
        types: list of strings. The allowed entity types. Defaults to `None`, all.
        entities: bool. Whether tags mark entities: see
            `keras_spanbert.data.conll.read`. Defaults to `True`.

    Returns:
        List of dicts: `words` and `tags`, in IOB2: see `keras_spanbert.data.conll.read`.

    Raises:
        ValueError: see `read_texts`. Also if the numbers of tags and words
            differ, a tag is malformed, or words or tags are a list printed as text.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_words("sentences.jsonl", words="tokens")
    ```
    """

    def build(example, place):
        found = example["tags"]
        if found is not None:
            size = len(example["words"])
            rule = f"`{tags}` must have a tag for each of the {size} words"
            check(len(found) == size, place, rule, found)
            for tag in found:
                check_tag(tag, types, place, entities)
            example["tags"] = to_iob2(found) if entities else found
        return example

    def as_words(value):
        found = as_strings(value)
        return found if found and not any(map(is_blank, found)) else refuse("have words", value)

    def as_tags(value):
        if not needs_labels and not value:
            return None
        return [tag.strip() for tag in as_strings(value, are_labels=True)]

    columns = {"words": (words, as_words), "tags": (tags, as_tags)}
    return read_examples(paths, columns, build, () if needs_labels else [tags], quoted)


def read_entities(
    paths,
    text: str = "text",
    entities: str = "entities",
    id: str | None = None,
    types: Sequence[str] | None = None,
) -> list[dict]:
    """Reads and checks texts with the positions of entities in characters.

    Exports of these tools are recognized by their keys:

    - doccano: JSONL, with or without relations.
    - Label Studio: JSON, as it is (`.json`) or a task per line, and JSON_MIN per
      line. Its positions, and doccano's, count an emoji as two characters. They are
      converted if the text of an entity is given, and otherwise refused.
    - Prodigy: JSONL from `db-out`.
    - spaCy: `.spacy` (`DocBin`), and lines such as
      `["Ann sang", {"entities": [[0, 3, "PERSON"]]}]`, or NER Annotator's `.json`.

    Texts that annotators rejected, ignored or skipped, or that nobody annotated, are
    left out, and the log counts them.

    Args:
        paths, text, id: see `read_texts`. Only files with a JSON object per line,
            and the exports above.
        entities: string. The column of a list of `{"start", "end", "label"}`, in
            characters from 0, with the end excluded. Defaults to `"entities"`.
        types: list of strings. The allowed labels. Defaults to `None`, all.

    Returns:
        List of dicts with `id`, `text`, `entities` and `place` (path and line, for messages).

    Raises:
        ValueError: see `read_texts`. Also if an entity is malformed, blank or
            overlaps another one, or its label is not allowed.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_entities("annotated.jsonl")
    ```
    """

    def as_entities(value):
        rule = "be a list of {start, end, label}, which only .jsonl files can hold"
        return value if isinstance(value, list) else refuse(rule, value)

    def build(example, place):
        content, last_end = example["text"], 0
        for entity in sorted(example["entities"], key=lambda entity: entity["start"]):
            start, end = entity["start"], entity["end"]
            rule = f"an entity must be in the text, which has {len(content)} characters"
            check(0 <= start < end <= len(content), place, rule, entity)
            check(last_end <= start, place, "an entity must not overlap another one", entity)
            check(content[start:end].strip(), place, "an entity must not be blank", entity)
            check_known(place, "the label of an entity", entity["label"], types)
            last_end = end
        return {**example, "place": place}

    def rows(path):
        return entity_rows(path, text, entities)

    columns = {"id": (id, as_id), "text": (text, as_text), "entities": (entities, as_entities)}
    return read_examples(paths, columns, build, rows=rows, endings=[".json", ".spacy"])
