"""Reads files of the MRQA 2019 shared task."""

from keras_spanbert.data import questions
from keras_spanbert.data.examples import check, field
from keras_spanbert.data.text_files import read_json_lines

_URL = "https://s3.us-east-2.amazonaws.com/mrqa/release/v2/"
_CHECKSUMS = {
    "train": {
        "SQuAD": "b094703b9c6f740cc2dfd70b3201b833553fcec0c8a522f22c2c6ff82ce2cc78",
        "NewsQA": "f1ccbf2d259ce1094aacde21a53592894248e5778814205dac94f0b086dbe968",
        "TriviaQA-web": "61fad6884370408282ad3ed0b5f25a9e932d9a724b6929ea03ea5344ff0cd3f7",
        "SearchQA": "32cda932667b7b65ab3079a8271d4e5726b4b989d0b862b25c77eb03a661b609",
        "HotpotQA": "3a94712c073dc9f29d88ac149faa01ef9c7c089f97ee25d9cbac39387550825d",
        "NaturalQuestionsShort": "6cdac324664b94b60be3203a077bf361d0bfa68a17af9b71def1186a6958a68c",
    },
    "dev": {
        "SQuAD": "5afa4b088adf297fc29374ddf2d44d974b8837380e2554e62edf258fee5c32ee",
        "NewsQA": "66bfb10cab2029bbc7d1afaece20c35fac341b1c179d15b70fde22a207f096ae",
        "TriviaQA-web": "faf8add436de5a5fa81071a4e7190850d7e9a20acc811439e8a127ba8ec25640",
        "SearchQA": "c84d2cc02cac5aa9d576ce1cd22900e9d75fe8a37bc795901c36cae6ef9e5ff0",
        "HotpotQA": "43bb9291525d8b59229ba327b67cca42f0a9c23798c455f6fbe813e9979cca84",
        "NaturalQuestionsShort": "2ba8b2181b520f81b49d62c0e4a23819f33d5dec0e8cf4a623edcda0feb73530",
        "DROP": "3f7b6b8131cd523d4451e98cf24adc53a92519763597261d28ae83f3920849ab",
        "DuoRC.ParaphraseRC": "aeb8b9a31044be2ba3d62a456d61b2d447ff76dabe6fa77260b6efed0fb4c010",
        "RACE": "c620ca043c78504ea02d1cef494207c6c76a5e5dedd7976f5fed5eb9724864b8",
        "RelationExtraction": "845668398356208246605fa1f363de63b45848c946d56514edcc8d00d12530ea",
        "TextbookQA": "1e861f197e739ead1947c60fa0917a02205dd48a559502194d7085ccd8608b64",
    },
}
FILES = {
    name: (_URL + name, checksum)
    for split, checksums in _CHECKSUMS.items()
    for name, checksum in ((f"{split}/{n}.jsonl.gz", c) for n, c in checksums.items())
}


def download(name: str) -> str:
    """Downloads an official file: see `keras_spanbert.data.squad.download`.

    Args:
        name: string, a key of `FILES`.

    Example:
    ```python
    path = keras_spanbert.data.mrqa.download("dev/TextbookQA.jsonl.gz")
    ```
    """
    return questions.download(name, FILES, "mrqa")


def read(paths, strict=False, for_training=True, needs_answers=True):
    """Reads and checks MRQA files: JSON lines, plain or gzip.

    Training uses the gold span that comes first in the context, as in the released SpanBERT.
    Scoring uses all gold texts. If a question has answers but no span, or its span is not in the
    context, it is left out of training. A warning counts these questions and names the first.

    Args:
        paths, strict, for_training: see `keras_spanbert.data.squad.read`.
        needs_answers: bool. Whether each question must have `answers` and
            `detected_answers`, as for training and scoring. Defaults to `True`.

    Returns:
        `Examples`: see `keras_spanbert.data.squad.read`.

    Raises:
        ValueError: if a line is not JSON in this format or a question has no answers (the message
            has path and line), the file is damaged, an id is repeated, a question or context is
            empty, or, with `strict`, a question would be left out.

    Example:
    ```python
    examples = keras_spanbert.data.mrqa.read("SQuAD.jsonl.gz")
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    ```

    Reference:
        [Fisch et al. 2019](https://arxiv.org/abs/1910.09753).
    """

    def answers(question, context, place):
        golds = field(question, "answers", place, list)
        are_right = (golds or not needs_answers) and all(isinstance(gold, str) for gold in golds)
        check(are_right, place, "`answers` must be one or more strings", golds)
        spans = []
        for answer in field(question, "detected_answers", place, list) if golds else ():
            for span in field(answer, "char_spans", place, list):
                is_pair = isinstance(span, list) and [type(x) for x in span] == [int, int]
                check(is_pair, place, "a span must be two integers, `[start, end]`", span)
                spans.append(span)
        if not golds:
            return None, None
        if not spans:
            return {"text": golds[0], "answer_start": None} if for_training else None, golds
        start, end = min(spans)
        is_inside = 0 <= start <= end < len(context)
        covered = context[start : end + 1] if is_inside else ""
        return {"text": covered, "answer_start": start}, golds

    return questions.read_questions(
        paths, _questions, answers, "qid", strict, for_training, needs_answers
    )


def _questions(path):
    """Yields `(place, context, question)`. The place is used in error messages."""
    for place, paragraph in read_json_lines(path):
        if isinstance(paragraph, dict) and "header" in paragraph:
            continue
        context = field(paragraph, "context", place, str)
        for q, question in enumerate(field(paragraph, "qas", place, list)):
            yield f"{place}, question {q}", context, question
