"""Invalid rows, labels and settings of every task are refused, with the rule and the value."""

import numpy as np
import pytest
from tiny_tasks import TASKS

from keras_spanbert.data.questions import Examples

TEXTS = ["w1", "w2"]
OF_TEXTS = "one of the model's 2: bad, good"
ASK = {"question": ["who", "who"], "context": ["ann sold", "it"]}
CHOOSE = {"prompt": ["red"] * 2, "choices": [["red", "blue"], ["red", "blue", "green"]]}
OF_CHOICES = "one of its question's choices, from 0. Received: "
WORDS = [["bob", "met"], ["ann"]]
TEXT = "annie met bob,in new york."


def example(subject=(0, 0), object=(1, 1), types=("PERSON", "COMPANY"), **changes):
    """Returns an example of two words. Spans are the first and the last word."""
    spans = dict(zip(["subj_start", "subj_end", "obj_start", "obj_end"], [*subject, *object]))
    types = dict(zip(["subj_type", "obj_type"], types))
    return {"token": ["a", "b"], **spans, **types, "relation": None, **changes}


def between(texts, subjects, objects, **more):
    """Returns columns of texts with spans, in characters."""
    return {"text": texts, "subject": subjects, "object": objects, **more}


def span(start, end, label="place"):
    return {"start": start, "end": end, "label": label}


# Task: x, y, message.
MISTAKES = {
    "texts": [("a", None, "`texts` must be a list of strings"),
     ({"text": ["a"], "text_pair": ["b", "c"]}, None, "the same length. Received: 1, 2"),
     ({"text": ["a"], "sentence": ["b"]}, None, '"text_pair", lists of .*: text, sentence'),
     (TEXTS, ["good"], "`y` must have a value for each row. Received: 1 for 2 rows"),
     (TEXTS, ["good", "odd"], f"{OF_TEXTS}, or its number. Received: 'odd' at 1"),
     (TEXTS, [0, 2], f"{OF_TEXTS}.*2 at 1"), (TEXTS, [0.5, 1.0], OF_TEXTS),
     (TEXTS, np.eye(2), OF_TEXTS)],
    "texts_with_several_labels": [(TEXTS, [["w1", "odd"], []],
     "one of the model's 13: w0, .* 'odd' at row 0"), (TEXTS, ["w1", "w2"], "each a list of names"),
     (TEXTS, [[], [1, 0]], "a 0 or 1 for each of the model's 13 classes. .* in row 1")],
    "questions": [(ASK["question"], None, '"question" and "context", lists .* of type list'),
     ({**ASK, "question": "who"}, None, "`questions` must be a list .* questions='who'"),
     ({**ASK, "context": ["ann"]}, None, "must have the same length. Received: 2, 1"),
     (ASK, [None], "must have the same length. Received: 2, 2, 1"),
     (ASK, ["ann"] * 2, r"\{'text': string, .* Received: answers\[0\]='ann'"),
     (ASK, [{"text": ["ann"], "answer_start": []}] * 2, r"An answer must be .*answers\[0\]"),
     (ASK, "ann", "`answers` must be a list .* answers='ann', of type str"),
     (ASK, [None, {"text": "b", "answer_start": 0}], "'b' at 0 of question 1, .* has 'i'")],
    "choices": [
        ({"prompt": ["a"]}, None, '"prompt" and "choices".* of type dict'),
        ([{"choices": ["a", "b"]}], None, r"have a `prompt`. Received: x\[0\]=\{'choices"),
        ({**CHOOSE, "prompt": "a"}, None, "`prompts` must be a list of strings.*prompts='a'"),
        ({**CHOOSE, "prompt": [("a", 1)]}, None, r"pair of strings.*prompts\[0\]=\('a', 1\)"),
        ({**CHOOSE, "prompt": [("a", "b")], "context": ["c"]}, None,
         "`prompts` must be strings if `contexts` are given"),
        ({"prompt": ["a"], "choices": ["ab"]}, None, r"a list of strings. .*choices\[0\]='ab'"),
        ({"prompt": ["a"], "choices": None}, None, "lists of strings. Received: choices=None"),
        ({"prompt": ["a"], "choices": [["a", None]]}, None, r"choices\[0\]\[1\]=None"),
        ({"prompt": ["a"], "choices": [["a"]]}, None, r"2 choices.*1 in choices\[0\]=\['a'\]"),
        ({"prompt": ["a"], "choices": np.array([["a", ""]])}, None, "at least 2 .* Received: 1"),
        ({**CHOOSE, "context": ["a"]}, None, "same length. Received: 2, 2, 1"),
        (CHOOSE, [2, 3], OF_CHOICES + "2 at 0, a question of 2"),  # Its third choice is padding.
        (CHOOSE, [0, -1], OF_CHOICES + "-1 at 1"),
        (CHOOSE, np.eye(2), OF_CHOICES + "array"),
        (CHOOSE, ["a", "b"], "must be a finite number.*Received: 'a' at 0"),
    ],
    "relations": [([example(obj_end=2)], None,
     r"example 0 \(id '0'\): `obj_start` .* within the 2 words"),
     ([example(types=(None, "COMPANY"))], None, "needs a type of the subject.*text"),
     ([example(types=("PERSON", "Q"))], None, "type of the object .*COMPANY.*: 'Q'"),
     ([{"token": ["a"]}], None, "`subj_start` must be a int. Received: None"),
     (["a b"], None, r"must be a dict .* Received: examples\[0\]='a b'"),
     ("a b", None, "must be a list of dicts"),
     ({"text": ["a b"]}, None, "must be a dict of text, subject, object .* keys text"),
     (between(["a"], [], [(0, 1)]), None, "the same length. Received: 1, 0"),
     (between(["a"], [0], [(0, 1)]), None, r"two integers each. Received: subjects\[0\]=0"),
     (between(["a"], 3, [(0, 1)]), None, r"a list of \(start, end\). Received: subjects=3"),
     (between(["a b"], [(0, 1)], [(1, 2)]), None, "text 0: the object must be"),
     (between(["a b"], [(0, 1)], [(2, 4)]), None, "from 0 to 3. Received: 2, 4"),
     (between([["a"]], [(0, 1)], [(0, 2)]), None, "the object must be words"),
     (between([3], [(0, 1)], [(0, 1)]), None, r"Received: texts\[0\]=3"),
     ({**{name: [0] * 3 for name in example()}, "token": [["a", "b"]] * 3, "obj_end": 1}, None,
     r"a single example as a list, \[x\].*obj_start: 3, obj_end: one value"),
     ([example()], ["boss"], "one of the model's 3: no_relation, head, .*'boss' at 0")],
    "words": [("a b", None,
     "a list of strings, or of lists of words. Received: texts='a b', of type str"),
     (["bob met"], [["O"]], r"An entity must be {'start', 'end', 'label'}.*'O' in text 0"),
     (["bob met"], "O", "a list of lists of entities if `x` are strings. Received: y='O'"),
     (WORDS, [["O"]], "a list of labels for each of the 2 lists of words"),
     (WORDS, [["O"], ["O"]], r"a label for each word. Received: \['O'\] for 2 words in text 0"),
     (WORDS, [["O", "B-x"], ["O"]], "one of the model's 5: O, B-p.* 'B-x' at word 1 of text 0"),
     ([TEXT], [], "a list of entities for each text. Received: 0 for 1 texts"),
     ([TEXT], [None], "must be a list of {'start', 'end', 'label'}. Received: None for text 0"),
     ([TEXT], [[(0, 5)]], r"must be {'start', 'end', 'label'}, two int.*\(0, 5\) in text 0"),
     ([TEXT], [[span(0, 27)]], "in its text, of 26 characters. Received: .*'end': 27"),
     ([TEXT], [[span(5, 6)]], "must contain a word. Received: .*' ' in text 0"),
     ([TEXT], [[span(0, 9), span(6, 13)]], "no word of another one. Received: .*'met bob' in te"),
     ([TEXT], [[span(0, 3)]], "begin and end where words do. Received: .*'ann' of 'annie' in te"),
     ([TEXT], [[span(0, 5, "group")]], "a type of the model's.*'group' in text 0")],
}  # fmt: skip
# Task: examples to score, message.
UNSCORABLE = [
    ("questions", Examples(["a"], ["who"], ["b"], [None], [None]), "none for the .* id 'a'"),
    ("choices", [{"prompt": "a", "choices": ["b", "c"]}], "must have labels. Received: none"),
    ("relations", [example(), example(relation="head")], "Received: None at 0"),
    ("words", [{"words": ["bob"], "tags": None}], "`examples` must be a list of dicts"),
    ("words", [{"words": ["bob"], "tags": ["O"] * 2}], r"2 for 1 words in examples\[0\]"),
    ("words", [{"words": ["bob"], "tags": ["B-x"]}], r"model's 5: O, .*'B-x' in examples\[0\]"),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(request):
    return TASKS[request.param].build()


@pytest.mark.parametrize(
    "model, x, y, message",
    [(name, *mistake) for name, mistakes in MISTAKES.items() for mistake in mistakes],
    indirect=["model"],
)
def test_invalid_rows_and_labels_are_named(model, x, y, message):
    with pytest.raises(ValueError, match=message):
        model.preprocess(x, y)


@pytest.mark.parametrize("model, examples, message", UNSCORABLE, indirect=["model"])
def test_examples_without_valid_labels_are_not_scored(request, model, examples, message):
    task = TASKS[request.node.callspec.params["model"]]
    with pytest.raises(ValueError, match=message):
        getattr(model, task.evaluate)(examples)


@pytest.mark.parametrize("names", [["O"] * 2, "O"])
def test_invalid_label_names_are_named(names):
    rule = "must not contain a name twice" if len(names) == 2 else "must be a list of strings"
    for task in TASKS.values():
        if task.labels:
            with pytest.raises(ValueError, match=f"`{task.labels}` {rule}. Received: "):
                task.build(**{task.labels: names})


def test_invalid_dropout_is_named():
    for name in set(TASKS) - {"questions"}:
        with pytest.raises(ValueError, match="`dropout` must be in"):
            TASKS[name].build(dropout=1.0)
