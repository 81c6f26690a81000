"""How fast is splitting questions and contexts into windows?

Measures questions per second of `SpanBertQuestionAnswererPreprocessor.windows`, including labels
and offsets. The peer works like the released script: plain Python that tokenizes word by word,
again for each question.

    KERAS_SPANBERT_DATA=... python benchmarks/windows.py  # Or --data train-v1.1.json

The limits are tokenising each context once and writing five arrays with all windows.
"""

import argparse
import os
import time
import unicodedata

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
from measuring import peak_bytes  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data import squad  # noqa: E402

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/squad/train-v1.1.json"))
    parser.add_argument(
        "--vocabulary", default=os.path.join(FOLDER, "reference/vocab/bert_base_cased.txt")
    )
    parser.add_argument("--sequence_length", type=int, default=384)
    parser.add_argument("--peer_questions", type=int, default=1000)
    args = parser.parse_args()

    tokenizer = ks.SpanBertTokenizer(args.vocabulary)
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor(tokenizer, args.sequence_length)
    examples = squad.read(args.data)
    preprocessor.windows(*(values[:10] for values in examples[1:4]))  # Builds the tokenizer.

    started = time.perf_counter()
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    ours = len(examples.ids) / (time.perf_counter() - started)
    peak = peak_bytes() / 1e9

    # Spread over the file, so that the contexts come from many articles.
    chosen = np.linspace(0, len(examples.ids) - 1, args.peer_questions).astype(int)
    pipeline = PlainPipeline(tokenizer.get_vocabulary(), preprocessor)
    started = time.perf_counter()
    features = [
        pipeline.features(examples.questions[i], examples.contexts[i], examples.answers[i])
        for i in chosen
    ]
    peer = args.peer_questions / (time.perf_counter() - started)

    by_example = np.searchsorted(windows["example_index"], chosen)
    differing = 0
    for row, rows in zip(by_example, features):
        for k, (ids, start, end) in enumerate(rows):
            got = windows["token_ids"][row + k], windows["start"][row + k], windows["end"][row + k]
            differing += not (np.array_equal(got[0], ids) and got[1] == start and got[2] == end)
    total = sum(map(len, features))
    print(f"{len(examples.ids):,} questions, {len(windows['token_ids']):,} windows of ", end="")
    print(f"{args.sequence_length}, {os.cpu_count()} CPU cores, peak {peak:.2f} GB")
    print(f"{'pipeline':<30}{'questions/s':>13}{'ratio to peer':>15}")
    print(f"{'windows':<30}{ours:>13,.0f}{ours / peer:>15.1f}")
    print(f"{'plain Python (peer)':<30}{peer:>13,.0f}{1:>15.1f}")
    print(f"differing windows: {differing} of {total:,}; target: ratio >= 8, peak < 2 GB")


class PlainPipeline:
    """Words, pieces and windows in plain Python."""

    def __init__(self, vocabulary, preprocessor):
        self.ids = {token: i for i, token in enumerate(vocabulary)}
        self.length = preprocessor.sequence_length
        self.stride = preprocessor.doc_stride
        self.max_question = preprocessor.max_question_length

    def words(self, text):
        word, words = "", []
        for character in text:
            category = unicodedata.category(character)
            is_mark = category.startswith("P") or (character.isascii() and category[0] == "S")
            if character.isspace() or category == "Zs":
                words, word = words + [word] if word else words, ""
            elif is_mark or "\u4e00" <= character <= "\u9fff":
                words, word = words + ([word] if word else []) + [character], ""
            elif category not in ("Cc", "Cf") and character != "\ufffd":
                word += character
        return words + [word] if word else words

    def pieces(self, word):
        found, start = [], 0
        while start < len(word) and len(word) <= 100:
            for stop in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:stop]
                if piece in self.ids:
                    break
            else:
                return ["[UNK]"]
            found.append(piece)
            start = stop
        return found or ["[UNK]"]

    def tokenize(self, text):
        return [piece for word in self.words(text) for piece in self.pieces(word)]

    def features(self, question, context, answer):
        words, word_at = [], []
        was_blank = True
        for character in context:
            is_blank = character in " \t\r\n\u202f"
            if not is_blank:
                if was_blank:
                    words.append("")
                words[-1] += character
            was_blank = is_blank
            word_at.append(max(0, len(words) - 1))
        tokens, first_of_word = [], []
        for word in words:
            first_of_word.append(len(tokens))
            tokens += self.tokenize(word)
        start = first_of_word[word_at[answer["answer_start"]]]
        last_word = word_at[answer["answer_start"] + len(answer["text"]) - 1]
        end = (first_of_word + [len(tokens)])[last_word + 1] - 1
        wanted = self.tokenize(answer["text"])
        start, end = next(
            (
                (s, e)
                for s in range(start, end + 1)
                for e in range(end, s - 1, -1)
                if tokens[s : e + 1] == wanted
            ),
            (start, end),
        )
        query = self.tokenize(question)[: self.max_question]
        room, rows, first = self.length - len(query) - 3, [], 0
        while True:
            part = tokens[first : first + room]
            row = ["[CLS]", *query, "[SEP]", *part, "[SEP]"]
            ids = [self.ids[token] for token in row] + [0] * (self.length - len(row))
            inside = first <= start and end < first + len(part)
            shift = len(query) + 2 - first
            rows.append((ids, start + shift, end + shift) if inside else (ids, 0, 0))
            if first + len(part) == len(tokens):
                return rows
            first += self.stride


if __name__ == "__main__":
    main()
