"""From questions and contexts to windows for `SpanBertQuestionAnswerer`."""

import re

import keras
import numpy as np

from keras_spanbert.models.preprocessor import SpanBertPreprocessor

# What the released script splits words at.
_BLANKS = " \t\r\n\u202f"
_WORD = re.compile(f"[^{_BLANKS}]+")
# Contexts tokenised at once, a bound on memory, and windows laid out at once, in the cache.
_TOKENIZE_BATCH = 1024
_LAYOUT_BATCH = 256


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
        self, tokenizer, sequence_length=512, doc_stride=128, max_question_length=64, **kwargs
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
                f"max_question_length={max_question_length}, doc_stride={doc_stride}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.doc_stride = int(doc_stride)
        self.max_question_length = int(max_question_length)
        self.built = True

    @classmethod
    def arguments_for(cls, config):
        longest = config["max_position_embeddings"]
        return {
            **super().arguments_for(config),
            "doc_stride": min(128, max(1, longest // 4)),
            "max_question_length": min(64, max(1, longest // 8)),
        }

    def call(self, x, y=None, sample_weight=None):
        """Windows of `{"question", "context"}`; `windows` gives their places too."""
        windows = self.windows(x["question"], x["context"], y)
        inputs = {n: windows[n] for n in ["token_ids", "segment_ids", "padding_mask"]}
        if y is None:
            return inputs
        return inputs, {n: windows[n] for n in ["start", "end"]}

    def windows(self, questions, contexts, answers=None):
        """Cuts questions and contexts into windows, and finds the answers in them.

        Args:
            questions: list of strings.
            contexts: list of as many strings. Equal ones are tokenised once.
            answers: list of as many `{"text", "answer_start"}`, the latter in
                characters, or `None` for no answer. Defaults to `None`: no
                labels.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask`
            `[W, L]`; `example_index` `[W]`, the window's question; `offsets`
            `[W, L, 2]`, each token's characters in the context, -1 outside it;
            `is_max_context` bool `[W, L]`, whether this window is the one that
            shows the token with the most context. With `answers` also `start`
            and `end` `[W]`, the answer's first and last token, 0 where the
            window lacks it.

        Raises:
            ValueError: where the lists differ in length, or an answer is not
                at its place in the context.
        """
        questions, contexts = list(questions), list(contexts)
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
        texts = _Tokens(self.tokenizer, list(unique), with_offsets=True)
        heads = _Tokens(self.tokenizer, questions)
        question_sizes = np.minimum(heads.sizes, self.max_question_length)

        # Parts of contexts: n for each question, and which of them a window is.
        room = self.sequence_length - 3 - question_sizes  # [Q]
        sizes = texts.sizes[context_of]
        num_parts = 1 + np.maximum(0, -(-(sizes - room) // self.doc_stride))
        example = np.repeat(np.arange(len(questions)), num_parts)  # [W]
        part = np.arange(len(example)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
        first = part * self.doc_stride  # Of the part, in the context's tokens.
        count = np.minimum(room[example], sizes[example] - first)

        L, W = self.sequence_length, len(example)
        windows = {
            "token_ids": np.empty((W, L), np.int32),
            "segment_ids": np.empty((W, L), np.int32),
            "padding_mask": np.empty((W, L), np.int32),
            "example_index": example.astype(np.int32),
            "offsets": np.empty((W, L, 2), np.int32),
            "is_max_context": np.empty((W, L), bool),
        }
        for begin in range(0, W, _LAYOUT_BATCH):
            rows = slice(begin, begin + _LAYOUT_BATCH)
            e = example[rows]
            self._lay_out(
                {name: array[rows] for name, array in windows.items()},
                heads,
                heads.starts[e],
                question_sizes[e],
                texts,
                texts.starts[context_of[e]],
                sizes[e],
                first[rows],
                count[rows],
            )
        if answers is not None:
            start, end = self._answer_tokens(contexts, answers, texts, context_of)
            shift = 2 + question_sizes[example] - first
            inside = (start[example] >= first) & (end[example] < first + count)
            for name, token in [("start", start), ("end", end)]:
                windows[name] = np.where(inside, token[example] + shift, 0).astype(np.int32)
        return windows

    def _lay_out(self, out, heads, head_start, head_size, texts, start, size, first, count):
        """Fills rows of windows: gathers from all tokens, one after another."""
        tokenizer = self.tokenizer
        columns = [x[:, None] for x in (head_start, head_size, start, size, first, count)]
        head_start, head_size, start, size, first, count = columns
        place = np.arange(self.sequence_length)[None, :]
        in_question = (place >= 1) & (place <= head_size)
        token = place - head_size - 2  # Of the part.
        in_context = (token >= 0) & (token < count)
        is_separator = (place == head_size + 1) | (token == count)

        from_question = np.where(in_question, head_start + place - 1, 0)
        from_context = np.where(in_context, start + first + token, 0)
        ids = np.where(
            in_question,
            heads.ids[from_question],
            np.where(in_context, texts.ids[from_context], tokenizer.pad_token_id),
        )
        ids = np.where(is_separator, tokenizer.sep_token_id, ids)
        out["token_ids"][:] = np.where(place == 0, tokenizer.cls_token_id, ids)
        out["padding_mask"][:] = token <= count
        out["segment_ids"][:] = (token >= 0) & (token <= count)
        out["offsets"][:] = np.where(in_context[:, :, None], texts.offsets[from_context], -1)
        room = self.sequence_length - 3 - head_size
        out["is_max_context"][:] = in_context
        several = np.flatnonzero(size > room)  # Of others this is the only window.
        out["is_max_context"][several] &= self._is_max_context(
            *(x[several] for x in (room, size, first, count, token))
        )

    def _is_max_context(self, room, size, first, count, token):
        # A token's score in a part is its smaller context, left or right, and a
        # hundredth of the part's size. The first part with the best score has it.
        def score(token, count):
            return np.minimum(token, count - 1 - token) + 0.01 * count

        mine = score(token, count)
        is_best = np.ones(mine.shape, bool)
        most = -(-max(0, int(np.max(size - room, initial=0))) // self.doc_stride)
        reach = min((int(np.max(room, initial=1)) - 1) // self.doc_stride, most)
        for parts_on in range(-reach, reach + 1):
            shift = parts_on * self.doc_stride
            exists = (first + shift >= 0) & (first + shift - self.doc_stride + room < size)
            other_count = np.minimum(room, size - first - shift)
            other = token - shift
            is_in = exists & (other >= 0) & (other < other_count)
            if parts_on < 0:
                is_best &= ~(is_in & (score(other, other_count) >= mine))
            elif parts_on > 0:
                is_best &= ~(is_in & (score(other, other_count) > mine))
        return is_best

    def _answer_tokens(self, contexts, answers, texts, context_of):
        """First and last token of each answer in its context; -1, -1 for none."""
        bounds = np.full((len(answers), 2), -1, np.int64)
        given = [i for i, answer in enumerate(answers) if answer is not None]
        answer_ids = self.tokenizer.tokenize_batch([answers[i]["text"] for i in given])
        for i, ids in zip(given, answer_ids):
            text, at = answers[i]["text"], answers[i]["answer_start"]
            if not text or contexts[i][at : at + len(text)] != text or at < 0:
                raise ValueError(
                    f"An answer must be at its place in the context. Received: {text!r} at {at} "
                    f"of question {i}, where the context has {contexts[i][at : at + len(text)]!r}"
                )
            bounds[i] = self._tokens_of(contexts[i], at, at + len(text), ids, texts, context_of[i])
        return bounds[:, 0], bounds[:, 1]

    def _tokens_of(self, context, at, stop, answer_ids, texts, number):
        ids, offsets = texts.of(number)
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


class _Tokens:
    """The tokens of many texts, one after another."""

    def __init__(self, tokenizer, texts, with_offsets=False):
        ids, offsets = [], []
        for begin in range(0, len(texts), _TOKENIZE_BATCH):
            batch = tokenizer.tokenize_batch(texts[begin : begin + _TOKENIZE_BATCH], with_offsets)
            ids += batch[0] if with_offsets else batch
            offsets += batch[1] if with_offsets else []
        self.sizes = np.array([len(x) for x in ids], np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes
        # One more, so that an index for nothing leads somewhere.
        self.ids = np.concatenate([*ids, np.zeros(1, np.int32)])
        self.offsets = np.concatenate([*offsets, np.zeros((1, 2), np.int32)])

    def of(self, number):
        part = slice(self.starts[number], self.starts[number] + self.sizes[number])
        return self.ids[part], self.offsets[part]
