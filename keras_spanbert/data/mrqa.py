"""Files of the MRQA 2019 shared task."""

from keras_spanbert.data import examples
from keras_spanbert.data.examples import ExamplesReader, as_list, field
from keras_spanbert.data.text_files import read_json_lines

_URL = "https://s3.us-east-2.amazonaws.com/mrqa/release/v2/"
FILES = {
    name: (_URL + name, checksum)
    for name, checksum in {
        "train/SQuAD.jsonl.gz": "b094703b9c6f740cc2dfd70b3201b833553fcec0c8a522f22c2c6ff82ce2cc78",
        "train/NewsQA.jsonl.gz": "f1ccbf2d259ce1094aacde21a53592894248e5778814205dac94f0b086dbe968",
        "train/TriviaQA-web.jsonl.gz": (
            "61fad6884370408282ad3ed0b5f25a9e932d9a724b6929ea03ea5344ff0cd3f7"
        ),
        "train/SearchQA.jsonl.gz": (
            "32cda932667b7b65ab3079a8271d4e5726b4b989d0b862b25c77eb03a661b609"
        ),
        "train/HotpotQA.jsonl.gz": (
            "3a94712c073dc9f29d88ac149faa01ef9c7c089f97ee25d9cbac39387550825d"
        ),
        "train/NaturalQuestionsShort.jsonl.gz": (
            "6cdac324664b94b60be3203a077bf361d0bfa68a17af9b71def1186a6958a68c"
        ),
        "dev/SQuAD.jsonl.gz": "5afa4b088adf297fc29374ddf2d44d974b8837380e2554e62edf258fee5c32ee",
        "dev/NewsQA.jsonl.gz": "66bfb10cab2029bbc7d1afaece20c35fac341b1c179d15b70fde22a207f096ae",
        "dev/TriviaQA-web.jsonl.gz": (
            "faf8add436de5a5fa81071a4e7190850d7e9a20acc811439e8a127ba8ec25640"
        ),
        "dev/SearchQA.jsonl.gz": "c84d2cc02cac5aa9d576ce1cd22900e9d75fe8a37bc795901c36cae6ef9e5ff0",
        "dev/HotpotQA.jsonl.gz": "43bb9291525d8b59229ba327b67cca42f0a9c23798c455f6fbe813e9979cca84",
        "dev/NaturalQuestionsShort.jsonl.gz": (
            "2ba8b2181b520f81b49d62c0e4a23819f33d5dec0e8cf4a623edcda0feb73530"
        ),
        "dev/DROP.jsonl.gz": "3f7b6b8131cd523d4451e98cf24adc53a92519763597261d28ae83f3920849ab",
        "dev/DuoRC.ParaphraseRC.jsonl.gz": (
            "aeb8b9a31044be2ba3d62a456d61b2d447ff76dabe6fa77260b6efed0fb4c010"
        ),
        "dev/RACE.jsonl.gz": "c620ca043c78504ea02d1cef494207c6c76a5e5dedd7976f5fed5eb9724864b8",
        "dev/RelationExtraction.jsonl.gz": (
            "845668398356208246605fa1f363de63b45848c946d56514edcc8d00d12530ea"
        ),
        "dev/TextbookQA.jsonl.gz": (
            "1e861f197e739ead1947c60fa0917a02205dd48a559502194d7085ccd8608b64"
        ),
    }.items()
}


def download(name: str) -> str:
    """Fetches an official file, unless it is in Keras's cache.

    Args:
        name: string, a key of `FILES`, for example `"train/SQuAD.jsonl.gz"`.

    Returns:
        Path of the file.

    Raises:
        ValueError: where there is no such file, or what came is another one.

    Example:
    ```python
    path = keras_spanbert.data.mrqa.download("dev/TextbookQA.jsonl.gz")
    ```
    """
    return examples.download(name, FILES, "mrqa")


def read(paths, strict=False, for_training=True):
    """Reads and checks MRQA files: JSON lines, plain or gzip.

    Of several gold spans the first in the context is what to train with, as in
    the released SpanBERT; all gold texts count in scoring. A question whose
    span is not in the context is left out of training, and the log names the
    first and counts them.

    Args:
        paths: string or list of strings.
        strict: bool. Whether such a span is an error. Defaults to `False`.
        for_training: bool. Whether to leave such questions out. Defaults to
            `True`.

    Returns:
        `Examples`: see `keras_spanbert.data.squad.read`.

    Raises:
        ValueError: where a line is not JSON of this form (path and line are
            named), the file is damaged, an id comes twice, a question or context
            is empty, or, with `strict`, a span is not in its context.

    Example:
    ```python
    examples = keras_spanbert.data.mrqa.read("SQuAD.jsonl.gz")
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    ```

    Reference:
        [Fisch et al. 2019](https://arxiv.org/abs/1910.09753).
    """
    reader, paths = ExamplesReader(strict, for_training), as_list(paths)
    for place, paragraph in (p for path in paths for p in _paragraphs(path)):
        context = field(paragraph, "context", place, str)
        for q, question in enumerate(field(paragraph, "qas", place, list)):
            where = f"{place}, question {q}"
            name, text = (field(question, key, where, str) for key in ["qid", "question"])
            golds = field(question, "answers", where, list)
            if not golds or not all(isinstance(gold, str) for gold in golds):
                raise ValueError(f"{where}: `answers` must be strings. Received: {golds!r:.80}")
            spans = sorted(_spans(question, where))
            answer = None
            if spans:
                start, end = spans[0]
                is_inside = 0 <= start <= end < len(context)
                covered = context[start : end + 1] if is_inside else ""
                answer = {"text": covered, "answer_start": start}
            reader.add(where, name, text, context, answer, golds)
    return reader.finish(paths)


def _spans(question, place):
    for answer in field(question, "detected_answers", place, list):
        for span in field(answer, "char_spans", place, list):
            if not (isinstance(span, list) and [type(x) for x in span] == [int, int]):
                raise ValueError(
                    f"{place}: a span must be two integers, both within it. Received: {span!r:.80}"
                )
            yield span


def _paragraphs(path):
    """Each line's paragraph and its place, without the header."""
    for place, paragraph in read_json_lines(path):
        if not (isinstance(paragraph, dict) and "header" in paragraph):
            yield place, paragraph
