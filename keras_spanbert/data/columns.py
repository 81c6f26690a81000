"""Reads CSV, TSV and JSON lines files with any column names, which arguments set."""

from collections.abc import Sequence

from keras_spanbert.data.choices import choice_example
from keras_spanbert.data.conll import check_tag, to_iob2
from keras_spanbert.data.examples import check, check_known, warn_left_out
from keras_spanbert.data.tables import is_blank, read_examples
from keras_spanbert.data.tacred import example_of_text, relation_example

# The label of SNLI's pairs on which the annotators did not agree, and its other labels.
_NO_AGREEMENT = "-"
_INFERENCE = {"entailment", "neutral", "contradiction"}


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
        text: string. The column of the text, which must not be blank. Defaults
            to `"text"`.
        text_pair: string. The column of the second text. Defaults to `None`,
            none.
        label: string. The column of the label. All readers strip blanks around
            labels. Defaults to `"label"`.
        id: string. The column of a unique id. Defaults to
            `None`: the number of the row.
        needs_labels: bool. Whether each row must have a label. Needed for training
            and scoring. Defaults to `True`.
        labels: list of strings. The allowed labels, such as those of the training
            set. Defaults to `None`, all.
        is_regression: bool. Whether labels are numbers. Defaults to `False`.
        quoted: bool. Whether cells may be quoted with `"`. Defaults to `None`:
            only in `.csv` files, with a warning if a cell of a `.tsv` file looks
            quoted.
        label_separator: string. If given, a row has any number of labels: a list
            in JSON lines, or a text with this separator, such as `"a|b"` for
            `"|"`. An empty text means no labels. Not with `is_regression`.
            Defaults to `None`: a row has one label.
        skip_label: string. The label of rows without a gold label, such as `"-"` in
            SNLI and MultiNLI, whose annotators did not agree on them. If labels are
            needed, these rows are left out, and the log counts them. Otherwise their
            label is `None`. Defaults to `None`: there is no such label.

    Returns:
        List of dicts with `id`, `text`, `text_pair` and `label`, as returned by
        `keras_spanbert.data.glue.read`. With `label_separator`, `label` is a list.

    Raises:
        ValueError: if a file has another ending, lacks a column or has a malformed
            row (the message has path, line and rule), a label is a list printed as
            text, such as `"['a', 'b']"` or `"[]"`, there are no rows,
            `label_separator` is empty, or it is given with `is_regression`. Also if
            `skip_label` is not given and SNLI's label `"-"` is among its other labels.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_texts("mails.csv", text="body", label="folder")
    ```
    """
    if label_separator is not None and (is_regression or not label_separator):
        raise ValueError(
            "`label_separator` must be a nonempty text, and None for a regression. Received: "
            f"label_separator={label_separator!r}, is_regression={is_regression}"
        )

    skipped, undecided = [], []  # Places.

    def check_agreement(place, labels):  # The row has the label `-`.
        if not _INFERENCE.isdisjoint(labels):
            raise ValueError(
                f"{place}: in SNLI and MultiNLI, the label `-` means that the annotators did not "
                'agree on one. `skip_label="-"` (--skip_label=-) leaves such rows out. Received: '
                "'-'"
            )

    def example(row):
        value = row.cells.get(label)
        value = str(value) if type(value) is int else value
        value = value.strip() if isinstance(value, str) else None
        if value is not None and value == skip_label:
            skipped.append(row.place)
            if needs_labels:
                return None
            row.cells[label] = None
        elif value == _NO_AGREEMENT and label_separator is None:
            undecided.append(row.place)
            check_agreement(row.place, labels or ())
        return {
            "id": row.id(id),
            "text": row.text(text),
            "text_pair": text_pair and row.text(text_pair, may_be_empty=True),
            "label": row.label(label, needs_labels, labels, is_regression, label_separator),
        }

    columns = [text, text_pair, id]
    examples = read_examples(paths, example, columns, label, needs_labels, quoted)
    if undecided:
        check_agreement(undecided[0], {example["label"] for example in examples})
    if skipped and needs_labels:
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

    Args:
        paths: see `read_texts`. Use `keras_spanbert.data.tacred.read` for
            files in TACRED's format, which gives positions in words.
        text: string. The column of the sentence. Defaults to `"text"`.
        subject: pair of strings. The columns of the subject's first character,
            counted from 0, and of the character after its last. Defaults to
            `("subject_start", "subject_end")`.
        object: the same for the object. Defaults to `("object_start", "object_end")`.
        subject_type, object_type: strings. The columns of types, such as
            PERSON. Default to `None`, none.
        relation: string. The column of the relation. Defaults to `"relation"`.
        id, needs_labels, quoted: see `read_texts`.
        relations: list of strings. The allowed relations. Defaults to `None`,
            all.

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

    def example(row):
        spans = [tuple(map(row.integer, span)) for span in [subject, object]]
        more = {
            "subj_type": subject_type and row.text(subject_type, may_be_empty=True),
            "obj_type": object_type and row.text(object_type, may_be_empty=True),
            "relation": row.label(relation, needs_labels, relations),
        }
        words = example_of_text(row.id(id), row.text(text), *spans, place=row.place, **more)
        return relation_example(words, row.place, needs_labels)

    columns = [text, *subject, *object, subject_type, object_type, id]
    return read_examples(paths, example, columns, relation, needs_labels, quoted)


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
        choices: list of strings, the columns of the choices. If a row has fewer
            choices, its last columns are empty. For JSON lines it can also be a
            string, the column with a list of choices. Defaults to
            `("choice0", "choice1", "choice2", "choice3")`.
        context: string. The column of a text that the question refers to.
            Defaults to `None`, none.
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
    names = [choices] if isinstance(choices, str) else list(choices)

    def example(row):
        prompt = row.text(question, may_be_empty=True)
        prompt = (row.text(context), prompt) if context else prompt
        if isinstance(choices, str):
            rule = "be a list of strings; for one column per choice, name two or more columns"
            row.check_not_printed(choices)
            row.check(not isinstance(row.cells[choices], str), choices, rule, row.cells[choices])
            texts = row.strings(choices)
        else:
            texts = [row.text(name, may_be_empty=True) for name in names]
            while texts and not texts[-1].strip():
                texts.pop()
        answer = row.cells.get(label)
        return choice_example(row.place, row.id(id), prompt, texts, answer, needs_labels)

    return read_examples(
        paths, example, [question, *names, context, id], label, needs_labels, quoted
    )


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
        tags: string. The column of their tags, in the same format. Defaults to
            `"tags"`.
        needs_labels, quoted: see `read_texts`.
        types: list of strings. The allowed entity types. Defaults to `None`,
            all.
        entities: bool. Whether tags mark entities: see
            `keras_spanbert.data.conll.read`. Defaults to `True`.

    Returns:
        List of dicts: `words` and `tags`, in IOB2: see
        `keras_spanbert.data.conll.read`.

    Raises:
        ValueError: see `read_texts`. Also if the numbers of tags and words
            differ, a tag is malformed, or words or tags are a list printed as text.

    Example:
    ```python
    examples = keras_spanbert.data.columns.read_words("sentences.jsonl", words="tokens")
    ```
    """

    def example(row):
        texts, found = row.strings(words), None
        row.check(texts and not any(map(is_blank, texts)), words, "have words", texts)
        if needs_labels or row.cells.get(tags):
            found = [tag.strip() for tag in row.strings(tags, are_labels=True)]
            rule = f"have a tag for each of the {len(texts)} words"
            row.check(len(found) == len(texts), tags, rule, found)
            for tag in found:
                check_tag(tag, types, row.place, entities)
            found = to_iob2(found) if entities else found
        return {"words": texts, "tags": found}

    return read_examples(paths, example, [words], tags, needs_labels, quoted)


def read_entities(
    paths,
    text: str = "text",
    entities: str = "entities",
    id: str | None = None,
    types: Sequence[str] | None = None,
) -> list[dict]:
    """Reads and checks texts with the positions of entities in characters.

    Args:
        paths, text, id: see `read_texts`. Only files with a JSON object per line.
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

    def example(row):
        content = row.text(text)
        rule = "be a list of {start, end, label}, which only .jsonl files can hold"
        row.check(not isinstance(row.cells[entities], str), entities, rule, row.cells[entities])
        given = row.cells[entities]
        is_list = isinstance(given, list)
        size = len(content)
        rule = f"be a list of {{start, end, label}}, in characters of the text, which has {size}"
        for entity in given if is_list else [given]:
            span = entity if is_list and isinstance(entity, dict) else {}
            start, end, kind = (span.get(key) for key in ["start", "end", "label"])
            is_right = type(start) is int and type(end) is int and 0 <= start < end <= size
            is_right = is_right and isinstance(kind, str) and kind.strip()
            row.check(is_right, entities, rule, entity)
        found = [{**entity, "label": entity["label"].strip()} for entity in given]
        last_end, place = 0, row.place
        for entity in sorted(found, key=lambda entity: entity["start"]):
            start, end = entity["start"], entity["end"]
            check(last_end <= start, place, "an entity must not overlap another one", entity)
            check(content[start:end].strip(), place, "an entity must not be blank", entity)
            check_known(place, "the label of an entity", entity["label"], types)
            last_end = end
        return {"id": row.id(id), "text": content, "entities": found, "place": row.place}

    return read_examples(paths, example, [text, id], entities, needs_labels=True)
