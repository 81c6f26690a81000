"""Reads exports of doccano, Label Studio, Prodigy and spaCy as rows of entities or of relations."""

from collections.abc import Iterator

from keras_spanbert.data.examples import check, warn_left_out
from keras_spanbert.data.text_files import read_json, read_json_lines
from keras_spanbert.files import ending
from keras_spanbert.optional import require

# Columns for the labels of the subject and of the object. No column of users has such a name.
SUBJECT_LABEL, OBJECT_LABEL = "\0subject", "\0object"
# Columns of spans in Prodigy, doccano, and Label Studio's JSON_MIN.
_SPANS = ("spans", "label", "labels")
# Keys that only rows of Prodigy and of Label Studio's JSON_MIN have.
_MARKS = ("_input_hash", "annotation_id")


def entity_rows(path, text="text", entities="entities", unless=None) -> Iterator[tuple]:
    """Yields `(place, row)` of JSON lines, or of a `.json` or `.spacy` file.

    An annotated row has the columns `text` and `entities`, a list of `{"start", "end", "label"}`.
    Others do not change, nor rows with a column `unless`. Texts whose annotation was rejected,
    skipped or never made are left out, and the log counts them.
    """
    left_out = []
    for place, row in _read(path):
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict):
            row = {text: row[0], **row[1]}  # A pair, as in older files for spaCy.
        if isinstance(row, dict) and unless not in row:
            is_task = [type(row.get(name)) for name in ["data", "annotations"]] == [dict, list]
            convert = _from_label_studio if is_task else _from_flat_row
            row = convert(row, place, text, entities)
        if row is None:
            left_out.append(place)
        else:
            yield place, row
    warn_left_out(left_out, "text", "without an accepted annotation")


def relation_rows(path, text: str, columns, relation: str, id: str | None) -> Iterator[tuple]:
    """Yields `(place, row)` for each relation of annotated rows. Others do not change.

    `columns` are those of the start and the end of the subject, and of the object.
    """
    for place, row in entity_rows(path, text, unless=columns[0]):
        if not isinstance(row, dict) or columns[0] in row or "entities" not in row:
            yield place, row
            continue
        number = 0
        for link in row.get("relations") or []:
            ends = _ends(link, row, place)
            label = link.get("label", link.get("type"))
            pairs = {"left": [ends[::-1]], "bi": [ends, ends[::-1]]}  # In Label Studio.
            for subject, object in pairs.get(link.get("direction"), [ends]):
                edges = [subject["start"], subject["end"], object["start"], object["end"]]
                types = {SUBJECT_LABEL: subject.get("label"), OBJECT_LABEL: object.get("label")}
                name = {id: f"{row[id]}-{number}"} if id in row else {}
                yield place, {**row, **dict(zip(columns, edges)), **types, relation: label, **name}
                number += 1


def _read(path):
    if ending(path) == ".spacy":
        spacy = require("spacy", "Reading a .spacy file")
        docs = spacy.tokens.DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab)
        for number, doc in enumerate(docs):
            spans = [
                {"start": span.start_char, "end": span.end_char, "label": span.label_}
                for span in doc.ents
            ]
            is_annotated = {} if doc.has_annotation("ENT_IOB") else {"answer": "ignore"}
            yield f"{path}, document {number}", {"text": doc.text, "spans": spans, **is_annotated}
    elif ending(path) == ".json":
        rows = read_json(path)
        if isinstance(rows, dict) and "classes" in rows:  # NER Annotator writes pairs as above.
            rows = rows.get("annotations")
        check(isinstance(rows, list), path, "a .json file must have a list of annotations", rows)
        yield from ((f"{path}, example {number}", row) for number, row in enumerate(rows))
    else:
        yield from read_json_lines(path)


def _from_flat_row(row, place, text, entities):
    """Converts a row of doccano, Prodigy or Label Studio's JSON_MIN."""
    if row.get("answer") in ("reject", "ignore"):  # In Prodigy.
        return None
    column = next((name for name in (entities, *_SPANS) if isinstance(row.get(name), list)), None)
    content = row.get(text, row.get("data"))  # In older files of doccano, `data` is the text.
    if not isinstance(content, str) or not (column or any(mark in row for mark in _MARKS)):
        return row
    spans = [_span(span, content, place, column) for span in row.get(column, [])]
    return {**row, text: content, entities: spans}


def _from_label_studio(row, place, text, entities):
    """Converts a task of Label Studio's JSON."""
    found = [one for one in row["annotations"] if not one.get("was_cancelled")]
    found = [one for one in found if one.get("ground_truth")] or found
    if not found:
        return None
    rule = "a task must have one annotation that was not skipped, or one that is ground truth"
    check(len(found) == 1, place, rule, f"{len(found)} annotations")
    texts = {name: value for name, value in row["data"].items() if isinstance(value, str)}
    rule = f"`data` must have `{text}`, or only one text (--text_column names another)"
    check(text in texts or len(texts) == 1, place, rule, [*row["data"]])
    content = texts[text] if text in texts else next(iter(texts.values()))
    spans, links = [], []
    for result in found[0].get("result", []):
        kind, labels = str(result.get("type")), result.get("labels") or [None]
        if kind == "relation":
            check(len(labels) == 1, place, "a relation must have one label", result)
            links.append({**result, "label": labels[0]})
        elif kind.endswith("labels"):
            check(kind == "labels", place, "labels must be of plain text", kind)
            span = _span(result.get("value"), content, place, kind)
            spans.append({**span, "id": result.get("id")})
    return {**row, text: content, entities: spans, "relations": links}


def _ends(link, row, place):
    """Returns the subject and the object of a relation."""
    rule = "a relation must link two spans of its text"
    check(isinstance(link, dict), place, rule, link)
    spans, key, ends = row["entities"], "id", [link.get("from_id"), link.get("to_id")]
    if "head" in link:  # Prodigy names the last token of a span, or one token without a label.
        key, ends = "token_end", [link["head"], link.get("child")]
        spans = [*spans, *({**token, key: token.get("id")} for token in row.get("tokens", []))]
    found = [next((one for one in spans if one.get(key) == end), None) for end in ends]
    found = [link.get(f"{name}_span") or one for name, one in zip(["head", "child"], found)]
    check(all(found) and None not in ends, place, rule, link)
    return found


def _span(given, content, place, column):
    """Returns a span as a dict with `start` and `end`, in characters of the text, and `label`."""
    if isinstance(given, list) and len(given) == 3:
        given = dict(zip(["start", "end", "label"], given))
    values = given if isinstance(given, dict) else {}
    start, end = (values.get(name, values.get(f"{name}_offset")) for name in ["start", "end"])
    label, labels = values.get("label"), values.get("labels")
    label = labels[0] if isinstance(labels, list) and len(labels) == 1 else label
    is_right = type(start) is type(end) is int and isinstance(label, str) and label.strip()
    check(is_right, place, "an entity must be {start, end, label}, with one label", given)
    if column in ("label", "labels") or "start_offset" in values:
        start, end = _in_characters(content, start, end, values.get("text"), place)
    return {**values, "start": start, "end": end, "label": label.strip()}


def _in_characters(content, start, end, text, place):
    """Returns positions of doccano or Label Studio, which may count an emoji as two, in characters.

    doccano can count it as one too, so that only the text of a span makes its positions certain.
    """
    units = content.encode("utf-16-le")
    twice = [len(units[: 2 * i].decode("utf-16-le", "ignore")) for i in (start, end)]
    if isinstance(text, str):
        for i, j in [(start, end), twice]:
            if content[i:j].split() == text.replace("\\n", " ").split():
                return i, j
        rule = f"the text at {start} to {end} must be {text!r:.80}"
        check(False, place, rule, content[start:end])
    rule = (
        "positions after an emoji are not certain, because it may count as two. Give entities as "
        '{"start", "end", "label"} in the column `entities`, in characters of Python'
    )
    is_certain = all(ord(character) < 0x10000 for character in content[:end])
    check(is_certain, place, rule, [start, end])
    return start, end
