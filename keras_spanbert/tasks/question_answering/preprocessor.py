"""From questions and contexts to windows for `SpanBertQuestionAnswerer`."""

import numbers
import re
import string

import keras
import numpy as np

from keras_spanbert.models import windows as text_windows
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.models.strings import as_strings
from keras_spanbert.models.token_lists import TokenLists, in_threads
from keras_spanbert.tasks.question_answering.windows import places as places_of

# What the released script splits words at.
_BLANKS = " \t\r\n\u202f"
_WORD = re.compile(f"[^{_BLANKS}]+")
# Where a text can be cut without changing the tokens of what is left.
_BREAKS = frozenset(" \t\r\n" + string.punctuation)
_LAYOUT_BATCH = 256  # Windows laid out at once, in the cache.


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertQuestionAnswererPreprocessor(SpanBertPreprocessor):
    """Cuts questions with their contexts into windows.

    A window is `[CLS] question [SEP] part of the context [SEP]`, segment 0 up
    to the first `[SEP]`, then 1. Parts start `doc_stride` tokens apart.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a window. Defaults to `512`.
        doc_stride: int. Tokens from a part's start to the next one's. Defaults
            to `128`.
        max_question_length: int. A question is cut there. Defaults to `64`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where the stride is below 1, or a window may have no room
            for as many tokens of the context as the stride: tokens would be in
            no window.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertQuestionAnswererPreprocessor(
        tokenizer, sequence_length=384
    )
    windows = preprocessor.windows(["Who wrote it?"], ["Bob wrote the letter."])
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1 and
        appendix B; windows are those of the released script.
    """

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 512,
        doc_stride: int = 128,
        max_question_length: int = 64,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value in [
            ("sequence_length", sequence_length),
            ("doc_stride", doc_stride),
            ("max_question_length", max_question_length),
        ]:
            if int(value) != value or value < 1:
                raise ValueError(f"`{name}` must be 1, 2, ... Received: {name}={value}")
        if max_question_length + 3 + doc_stride > sequence_length:
            raise ValueError(
                "`sequence_length` must hold the question, 3 special tokens and `doc_stride` "
                f"tokens of the context. Received: sequence_length={sequence_length}, "
                f"max_question_length={max_question_length}, doc_stride={doc_stride}. As in the "
                f"presets of this length: {self.arguments_for_length(int(sequence_length))}"
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
        """The released `doc_stride` and `max_question_length`, less in short windows."""
        return {
            "doc_stride": min(128, max(1, sequence_length // 2 - 3)),
            "max_question_length": min(64, max(1, 3 * sequence_length // 8)),
        }

    def call(self, x, y=None, sample_weight=None):
        """Windows of `{"question", "context"}`; `windows` gives their places too."""
        if not isinstance(x, dict) or not {"question", "context"} <= set(x):
            raise ValueError(
                '`x` must be a dict of "question" and "context", lists of strings. Received: '
                f"x={x!r:.80}, of type {type(x).__name__}"
            )
        windows = self.windows(x["question"], x["context"], y)
        inputs = {n: windows[n] for n in ["token_ids", "segment_ids", "padding_mask"]}
        if y is None:
            return inputs
        labels = {n: windows[n] for n in ["start", "end"]}
        if sample_weight is None:
            return inputs, labels
        weights = np.asarray(sample_weight, "float32")
        if weights.shape != (len(x["question"]),):
            raise ValueError(
                "`sample_weight` must have a number for each question. Received: shape "
                f"{weights.shape} for {len(x['question'])} questions"
            )
        return inputs, labels, {n: weights[windows["example_index"]] for n in labels}

    def windows(self, questions, contexts, answers=None) -> dict:
        """Cuts questions and contexts into windows, and finds the answers in them.

        Args:
            questions: list, tuple, array or tensor of strings.
            contexts: likewise as many strings. Equal ones are tokenised once.
            answers: list of as many `{"text", "answer_start"}`, the latter in
                characters, or `None` for no answer; or a dict of the columns
                `text` and `answer_start`, where -1 stands for no answer.
                Defaults to `None`: no labels.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask`
            `[W, L]`; `example_index` `[W]`, the window's question; `offsets`
            `[W, L, 2]`, each token's characters in the context, -1 outside it;
            `is_max_context` bool `[W, L]`, whether this window is the one that
            shows the token with the most context. With `answers` also `start`
            and `end` `[W]`, the answer's first and last token, 0 where the
            window lacks it.

        Raises:
            ValueError: where the lists differ in length or hold something else,
                or an answer is not at its place in the context.
        """
        questions, contexts = as_strings(questions=questions), as_strings(contexts=contexts)
        answers = None if answers is None else _as_answers(answers)
        if len(questions) != len(contexts) or (
            answers is not None and len(answers) != len(contexts)
        ):
            raise ValueError(
                "`questions`, `contexts` and `answers` must be as many. Received: "
                f"{len(questions)}, {len(contexts)}"
                + ("" if answers is None else f", {len(answers)}")
            )
        unique = {}
        context_of = np.array([unique.setdefault(c, len(unique)) for c in contexts], np.int64)
        texts = TokenLists(self.tokenizer, list(unique), with_offsets=True)
        heads = TokenLists(self.tokenizer, questions)
        question_sizes = np.minimum(heads.sizes, self.max_question_length)
        parts = text_windows.parts(
            np, question_sizes + 2, texts.sizes[context_of], self.sequence_length, self.doc_stride
        )
        example = parts.example
        L, W = self.sequence_length, len(example)
        windows = {
            "token_ids": np.empty((W, L), np.int32),
            "segment_ids": np.empty((W, L), np.int32),
            "padding_mask": np.empty((W, L), np.int32),
            "example_index": example.astype(np.int32),
            "offsets": np.empty((W, L, 2), np.int32),
            "is_max_context": np.empty((W, L), bool),
        }

        def lay_out(begin):
            rows = slice(begin, begin + _LAYOUT_BATCH)
            self._lay_out(
                {name: array[rows] for name, array in windows.items()},
                text_windows.Parts(*(x[rows] for x in parts)),
                heads,
                texts,
                context_of,
            )

        in_threads(lay_out, range(0, W, _LAYOUT_BATCH))
        if answers is not None:
            start, end = self._answer_tokens(contexts, answers, texts, context_of)
            shift = parts.before - parts.first
            inside = (start[example] >= parts.first) & (end[example] < parts.first + parts.count)
            for name, token in [("start", start), ("end", end)]:
                windows[name] = np.where(inside, token[example] + shift, 0).astype(np.int32)
        return windows

    def _lay_out(self, out, parts, heads, texts, context_of):
        """Fills rows of windows: gathers from all tokens, one after another."""
        tokenizer, length = self.tokenizer, self.sequence_length
        places = places_of(np, parts, length)
        from_question = heads.starts[parts.example][:, None] + places.question_token
        from_context = texts.starts[context_of[parts.example]][:, None] + places.context_token
        ids = np.where(
            places.in_question,
            heads.ids[from_question],
            np.where(places.in_context, texts.ids[from_context], np.int32(tokenizer.pad_token_id)),
        )
        sep = np.int32(tokenizer.sep_token_id)
        out["token_ids"][:] = np.where(places.is_separator, sep, ids)
        out["token_ids"][:, 0] = tokenizer.cls_token_id
        out["padding_mask"][:] = places.padding_mask
        out["segment_ids"][:] = places.segment_ids
        out["offsets"][:] = np.where(places.in_context[:, :, None], texts.offsets[from_context], -1)
        out["is_max_context"][:] = places.in_context
        # The rest are their contexts' only windows.
        several = np.flatnonzero(parts.size > length - 1 - parts.before)
        if several.size:
            several_parts = text_windows.Parts(*(x[several] for x in parts))
            beyond = np.max(several_parts.size + several_parts.before + 1 - length)
            reach = min(
                text_windows.most_reach(length - 3, self.doc_stride), -(-beyond // self.doc_stride)
            )
            out["is_max_context"][several] = text_windows.is_max_context(
                np, several_parts, length, self.doc_stride, reach
            )

    def _answer_tokens(self, contexts, answers, texts, context_of):
        """First and last token of each answer in its context; -1, -1 for none."""
        bounds = np.full((len(answers), 2), -1, np.int64)
        alone = {}  # Answers to tokenise on their own.
        for i, answer in enumerate(answers):
            if answer is None:
                continue
            text, at = answer["text"], answer["answer_start"]
            if not text or contexts[i][at : at + len(text)] != text or at < 0:
                raise ValueError(
                    f"An answer must be at its place in the context. Received: {text!r} at {at} "
                    f"of question {i}, where the context has {contexts[i][at : at + len(text)]!r}"
                )
            tokens = texts.of(context_of[i])
            ids = _tokens_between(contexts[i], at, at + len(text), *tokens)
            if ids is None:
                alone[i] = text
            else:
                bounds[i] = self._tokens_of(contexts[i], at, at + len(text), ids, *tokens)
        for i, ids in zip(alone, self.tokenizer.tokenize_batch(list(alone.values()))):
            at, stop = answers[i]["answer_start"], answers[i]["answer_start"] + len(alone[i])
            bounds[i] = self._tokens_of(contexts[i], at, stop, ids, *texts.of(context_of[i]))
        return bounds[:, 0], bounds[:, 1]

    def _tokens_of(self, context, at, stop, answer_ids, ids, offsets):
        # The whole words that hold the answer, then within their tokens those
        # that the answer alone would have, if they are there.
        at = 1 + max(context.rfind(blank, 0, at) for blank in _BLANKS)
        word = _WORD.match(context, stop - 1)
        stop = word.end() if word else stop
        first = int(np.searchsorted(offsets[:, 1], at, side="right"))
        last = int(np.searchsorted(offsets[:, 0], stop, side="left")) - 1
        if last < first:  # Nothing that the tokenizer sees.
            return -1, -1
        n = len(answer_ids)
        for begin in range(first, last + 2 - n if n else first):
            if np.array_equal(ids[begin : begin + n], answer_ids):
                return begin, begin + n - 1
        return first, last

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "sequence_length": self.sequence_length,
                "doc_stride": self.doc_stride,
                "max_question_length": self.max_question_length,
            }
        )
        return config


def _as_answers(answers):
    """A list of `{"text", "answer_start"}` or `None`, of one or of a dict of columns."""
    if isinstance(answers, dict) and set(answers) == {"text", "answer_start"}:
        columns = as_strings(text=answers["text"]), np.asarray(answers["answer_start"]).tolist()
        return [
            None if at == -1 else {"text": text, "answer_start": at} for text, at in zip(*columns)
        ]
    if not isinstance(answers, (list, tuple)):
        raise ValueError(
            "`answers` must be a list of {'text', 'answer_start'} or None, or a dict of these "
            f"columns. Received: {answers!r:.80}, of type {type(answers).__name__}"
        )
    for i, answer in enumerate(answers):
        is_answer = answer is None or (
            isinstance(answer, dict)
            and isinstance(answer.get("text"), str)
            and isinstance(answer.get("answer_start"), numbers.Integral)
        )
        if not is_answer:
            raise ValueError(
                "An answer must be {'text': string, 'answer_start': int} or None. Received: "
                f"answers[{i}]={answer!r:.80}"
            )
    return answers


def _tokens_between(context, at, stop, ids, offsets):
    """The tokens that `context[at:stop]` alone would have, where the context's show them."""
    for before, after in [(at - 1, at), (stop - 1, stop)]:
        is_inside = 0 <= before and after < len(context)
        if is_inside and context[before] not in _BREAKS and context[after] not in _BREAKS:
            return None
    first = int(np.searchsorted(offsets[:, 0], at))
    last = int(np.searchsorted(offsets[:, 1], stop))
    is_whole = first <= last < len(ids) and (offsets[first, 0], offsets[last, 1]) == (at, stop)
    return ids[first : last + 1] if is_whole else None
