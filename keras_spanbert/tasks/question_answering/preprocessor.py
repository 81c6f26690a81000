"""Converts questions and contexts to windows for `SpanBertQuestionAnswerer`.

Legend for the tokens of answers: N = questions, U = different contexts. All integers are int64.
"""

import numbers

import keras
import numpy as np

from keras_spanbert.checks import (
    accepts_datasets,
    check_counts,
    check_kind,
    check_same_length,
    to_python,
)
from keras_spanbert.data.batches import SEQUENCES
from keras_spanbert.layers.array_functions import namespace, take
from keras_spanbert.models.preprocessor import SpanBertPreprocessor, as_weights
from keras_spanbert.optional import tf
from keras_spanbert.text.strings import as_strings, column, columns_of, is_examples
from keras_spanbert.text.tokens import (
    DocSpans,
    Part,
    doc_spans,
    in_chunks,
    is_max_context,
    token_rows,
    tokenize_texts,
    unique_texts,
)

# Characters at which the released script splits words.
_BLANKS = " \t\r\n\u202f"


def answer_characters(answers, contexts) -> np.ndarray:
    """Returns the start and the stop of answers in their contexts, `[N, 2]`, -1 for no answer.

    The answers may have any form. Raises `ValueError` if one is not at its position.
    """
    if isinstance(answers, dict) and set(answers) == {"text", "answer_start"}:
        columns = as_strings("text", answers["text"]), np.asarray(answers["answer_start"]).tolist()
        answers = [
            None if at == -1 else {"text": text, "answer_start": at} for text, at in zip(*columns)
        ]
    rule = "a list of {'text', 'answer_start'} or None, or a dict of these columns"
    check_kind("answers", answers, isinstance(answers, (list, tuple)), rule)
    places = np.full((len(answers), 2), -1)
    for i, (answer, context) in enumerate(zip(answers, contexts)):
        text = at = None
        if isinstance(answer, dict):
            text, at = (to_python(answer.get(name)) for name in ["text", "answer_start"])
            # Columns of several answers, as in Hugging Face's `datasets`.
            if isinstance(text, list) and isinstance(at, list) and len(text) == len(at):
                answer, text, at = (answer, text[0], at[0]) if text else (None, None, None)
        if answer is None:
            continue
        if not isinstance(text, str) or not isinstance(at, numbers.Integral):
            raise ValueError(
                "An answer must be {'text': string, 'answer_start': int} or None. Received: "
                f"answers[{i}]={answer!r:.80}"
            )
        if not text or at < 0 or context[at : at + len(text)] != text:
            raise ValueError(
                f"An answer must be at its place in the context. Received: {text!r} at {at} "
                f"of question {i}, where the context has {context[at : at + len(text)]!r}"
            )
        places[i] = at, at + len(text)
    return places


def answer_tokens(texts, tokens, context_of, answers):
    """Returns the first and the last token of each answer in its context, int32 `[2, N]`.

    The tokens are those that overlap the answer's characters, and if there are none, those of the
    words that contain the answer. Both are -1 without an answer or such tokens. `texts` are U
    contexts and `tokens` their `Tokens` with offsets, `context_of` is `[N]`, and `answers` are
    those of `answer_characters`.
    """
    # === Answers and tokens, in characters of all contexts, with a blank after each ===
    characters = "".join(f"{text} " for text in texts).encode("utf-32-le", "surrogatepass")
    sizes = np.array([len(text) + 1 for text in texts], np.int64)
    text_starts = np.cumsum(sizes) - sizes
    has_answer = answers[:, 0] >= 0
    start, stop = np.where(has_answer[:, None], answers, [0, 1]).T + text_starts[context_of]
    begins, ends = (tokens.offsets[:-1] + np.repeat(text_starts, tokens.sizes)[:, None]).T

    def overlap(start, stop):
        found = np.searchsorted(ends, start, "right"), np.searchsorted(begins, stop) - 1
        return np.stack(found)

    # === The whole words, for answers without tokens ===
    blanks = np.isin(np.frombuffer(characters, np.uint32), list(map(ord, _BLANKS)))
    blanks = np.flatnonzero(blanks)
    before = np.searchsorted(blanks, start) - 1
    word_start = np.where(before < 0, 0, blanks[np.maximum(before, 0)] + 1)
    word_stop = np.maximum(blanks[np.searchsorted(blanks, stop - 1)], stop)

    own, words = overlap(start, stop), overlap(word_start, word_stop)
    found = np.where(own[0] > own[1], words, own)
    has_tokens = has_answer & (found[0] <= found[1])
    return np.where(has_tokens, found - tokens.starts[context_of], -1).astype(np.int32)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertQuestionAnswererPreprocessor(SpanBertPreprocessor):
    """Cuts questions with their contexts into windows.

    A window is `[CLS] question [SEP] part of the context [SEP]`. The segment is 0 up
    to the first `[SEP]`, then 1. Parts start `doc_stride` tokens apart.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a window. Defaults to `512`.
        doc_stride: int. Number of tokens from the start of a part to that of the
            next. Defaults to `128`.
        max_question_length: int. Longer questions are cut. Defaults to `64`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if the stride is below 1, or a window may have fewer tokens of the
            context than the stride, so that some tokens would be in no window.

    Call arguments:
        x: a dict of `"question"` and `"context"`, strings `[N]` each, or a list of
            dicts with these keys and, optionally, `"answers"`, the `y`.
        y: answers, see `windows`: a dict of `"text"`, strings `[N]`, and `"answer_start"`, integers
            `[N]`, -1 for no answer, or, not in `tf.data`, a list of dicts and `None`. Defaults to
            `None`, no labels.
        sample_weight: numbers `[N]`. Defaults to `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)` for W windows, at least one per question. `x` is a
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `[W, L]`. `y` is a dict of
        `start` and `end`, int32 `[W]`, and `sample_weight` has the same names, float32 `[W]`.

    Examples:
    ```python
    preprocessor = keras_spanbert.SpanBertQuestionAnswererPreprocessor(
        tokenizer, sequence_length=384
    )
    windows = preprocessor.windows(["Who wrote it?"], ["Bob wrote the letter."])
    x = {"question": ["Who wrote it?"], "context": ["Bob wrote the letter."]}
    y = {"text": ["Bob"], "answer_start": [0]}
    inputs, labels = preprocessor(x, y)

    # Batches of a `tf.data.Dataset`, on every backend.
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
    dataset = dataset.map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1 and appendix B. Windows
        and labels are the same as in the released script, except that the script looks for the
        answer's text in the words around it and uses these words if it does not find it.
    """

    config_names = ("sequence_length", "doc_stride", "max_question_length")

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 512,
        doc_stride: int = 128,
        max_question_length: int = 64,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_counts(
            sequence_length=sequence_length,
            doc_stride=doc_stride,
            max_question_length=max_question_length,
        )
        if max_question_length + 3 + doc_stride > sequence_length:
            raise ValueError(
                "`sequence_length` must allow the question, 3 special tokens and `doc_stride` "
                f"tokens of the context. Received: sequence_length={sequence_length}, "
                f"max_question_length={max_question_length}, doc_stride={doc_stride}. Values "
                f"that fit this length: {self.arguments_for_length(int(sequence_length))}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.doc_stride = int(doc_stride)
        self.max_question_length = int(max_question_length)
        self.built = True

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        arguments = super().arguments_for(settings)
        return {**arguments, **cls.arguments_for_length(arguments["sequence_length"])}

    @classmethod
    def arguments_for_length(cls, sequence_length: int) -> dict:
        """Returns the released stride and question length, reduced for short windows."""
        return {
            "doc_stride": min(128, max(1, sequence_length // 2 - 3)),
            "max_question_length": min(64, max(1, 3 * sequence_length // 8)),
        }

    def convert(self, x, y, sample_weight):
        if is_examples(x):
            if y is None and "answers" in x[0]:
                y = column(x, "answers")
            x = columns_of(x, ["question", "context"])
        is_dict = isinstance(x, dict) and {"question", "context"} <= set(x)
        check_kind("x", x, is_dict, 'a dict of "question" and "context", lists of strings')
        windows = self.windows(x["question"], x["context"], y)
        inputs = {n: windows[n] for n in SEQUENCES}
        labels = None if y is None else {n: windows[n] for n in ["start", "end"]}
        if sample_weight is not None:
            weights = as_weights(sample_weight, x["question"], "question")
            sample_weight = dict.fromkeys(["start", "end"], weights[windows["example_index"]])
        return keras.utils.pack_x_y_sample_weight(inputs, labels, sample_weight)

    def signature(self, x, y, sample_weight):
        labels, weights = (
            None if given is None else dict.fromkeys(["start", "end"], tf.TensorSpec([None], dtype))
            for given, dtype in [(y, "int32"), (sample_weight, "float32")]
        )
        return keras.utils.pack_x_y_sample_weight(self.sequence_specs(None), labels, weights)

    @accepts_datasets
    def windows(self, questions, contexts, answers=None) -> dict:
        """Cuts questions and contexts into windows, and finds the answers in them.

        Args:
            questions: list, tuple, array or tensor of strings.
            contexts: as many strings, in the same form. Equal ones are tokenized once.
            answers: list with `{"text", "answer_start"}` for each question, with the start in
                characters, or `None` for no answer. Or a dict of these columns, with -1 for no
                answer. In lists of texts and starts, as in SQuAD on Hugging Face, the first counts,
                and empty ones mean no answer. Defaults to `None`: no labels.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask` `[W, L]`;
            `example_index` `[W]`, the window's question; `offsets` `[W, L, 2]`, each token's
            characters in the context, -1 outside it; `is_max_context` bool `[W, L]`, whether this
            window is the one that shows the token with the most context. With `answers` also
            `start` and `end` `[W]`, the first and last token that overlap the answer's characters,
            0 if the window does not contain all of them.

        Raises:
            ValueError: if the lists differ in length or contain other values,
                or an answer is not at its position in the context.
        """
        questions, contexts = as_strings("questions", questions), as_strings("contexts", contexts)
        xp = namespace(questions)
        columns = {"questions": questions, "contexts": contexts}
        if answers is not None:
            columns["answers"] = answers = answer_characters(answers, contexts)
        if xp is np:
            check_same_length(**columns)
        length, stride = self.sequence_length, self.doc_stride
        unique, context_of = unique_texts(contexts)
        texts = tokenize_texts(self.tokenizer, unique, with_offsets=True)
        heads = tokenize_texts(self.tokenizer, questions)
        starts, sizes = (take(xp, x, context_of) for x in (texts.starts, texts.sizes))
        before = xp.minimum(heads.sizes, np.int32(self.max_question_length)) + 2
        spans = doc_spans(xp, before, sizes, length, stride)

        def lay_out(rows):
            some = DocSpans(*(x[rows] for x in spans))
            of_question, of_context = (take(xp, x, some.example) for x in (heads.starts, starts))
            parts = [
                Part(heads.ids, of_question, some.before - 2),
                Part(texts.ids, of_context + some.first, some.count),
            ]
            laid_out, (_, (in_context, token)) = token_rows(xp, parts, length, self.tokenizer)
            offsets = take(xp, texts.offsets, token)
            return {
                **laid_out,
                "offsets": xp.where(in_context[:, :, None], offsets, np.int32(-1)),
                "is_max_context": is_max_context(xp, some, length, stride),
            }

        example = spans.example
        windows = {"example_index": example}
        if answers is not None:
            bounds = answer_tokens(unique, texts, context_of, answers)
            start, end = bounds[:, example]
            is_inside = (start >= spans.first) & (end < spans.first + spans.count)
            shift = spans.before - spans.first
            for name, token in [("start", start), ("end", end)]:
                windows[name] = np.where(is_inside, token + shift, np.int32(0))
        # The largest arrays are made last, after the memory for answers is free again.
        return {**in_chunks(xp, example, lay_out), **windows}
