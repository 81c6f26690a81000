import unicodedata

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data import squad

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "a", "b", "c", "d", "e", "##x"]
ID = {token: i for i, token in enumerate(VOCABULARY)}


def test_defaults_fit_windows_of_any_length():
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    for length in [5, 24, 384]:
        arguments = ks.SpanBertQuestionAnswererPreprocessor.arguments_for_length(length)
        preprocessor = ks.SpanBertQuestionAnswererPreprocessor(tokenizer, length, **arguments)
    # The released defaults.
    assert (preprocessor.doc_stride, preprocessor.max_question_length) == (128, 64)


def test_window_length_is_that_of_the_backbone():
    found = ks.SpanBertQuestionAnswererPreprocessor.arguments_for({"max_position_embeddings": 64})
    assert found == {"sequence_length": 64, "doc_stride": 29, "max_question_length": 24}


def build(sequence_length=10, doc_stride=2, max_question_length=3):
    return ks.SpanBertQuestionAnswererPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), sequence_length, doc_stride, max_question_length
    )


def ids(text):
    return [ID[token] for token in text.split()]


def test_windows_by_hand():
    # 10 - 3 - 1 = 6 context tokens per window, with a stride of 2.
    windows = build().windows(["who", "who a b c"], ["a b c d e a b", "bx  c"])
    np.testing.assert_array_equal(windows["example_index"], [0, 0, 1])
    np.testing.assert_array_equal(
        windows["token_ids"],
        [
            ids("[CLS] who [SEP] a b c d e a [SEP]"),
            ids("[CLS] who [SEP] c d e a b [SEP] [PAD]"),
            ids("[CLS] who a b [SEP] b ##x c [SEP] [PAD]"),  # A question has at most 3 tokens.
        ],
    )
    np.testing.assert_array_equal(windows["padding_mask"].sum(axis=1), [10, 9, 9])
    np.testing.assert_array_equal(windows["segment_ids"].argmax(axis=1), [3, 3, 5])
    np.testing.assert_array_equal(windows["segment_ids"].sum(axis=1), [7, 6, 4])
    np.testing.assert_array_equal(windows["offsets"][1, 3:8, 0], [4, 6, 8, 10, 12])
    np.testing.assert_array_equal(windows["offsets"][2, 5:8], [[0, 1], [1, 2], [4, 5]])
    assert (windows["offsets"][2, :5] == -1).all() and (windows["offsets"][2, 8:] == -1).all()


def test_answer_without_tokens_is_the_whole_word():
    contexts, answer = ["a b\u200dx c", "a\u202f\u200db"], {"text": "\u200d", "answer_start": 3}
    windows = build().windows(["who"] * 2, contexts, [answer, {**answer, "answer_start": 2}])
    assert windows["start"].tolist() == [4, 4] and windows["end"].tolist() == [5, 4]


# Contexts, and answers with the number of their earlier occurrences in the context.
ANSWERS = [
    ("The Ann-Ann duo sang.", [("Ann", 1), ("duo", 0), ("Ann-Ann", 0)]),
    ("Score 50-50  after  50 and 3,086,000", [("50", 1), ("50", 2), ("6", 0), ("after  50", 0)]),
    ("Die Autobahn A9 bei Westberlin, Berlin.", [("bahn", 0), ("berlin", 0), ("Berlin", 0)]),
    ("北京和南京都是城市，南京在江苏。", [("南京", 0), ("南京", 1), ("江苏", 0), ("京都", 0)]),
    ("夏目漱石は1901年に東京で東京日記を書いた。", [("1901", 0), ("夏目漱石", 0), ("東京", 1)]),
    ("ولد أحمد في القاهرة عام 1901 وأحمد", [("القاهرة", 0), ("قاهرة", 0), ("أحمد", 1)]),
    ("กรุงเทพเป็นเมืองของไทย ไทยกรุงเทพ", [("เมือง", 0), ("ไทย", 1), ("กรุงเทพ", 1)]),
    ("김서울은 서울에서 서울을 보았다", [("서울", 1), ("서울", 2), ("보", 0)]),
    ("Ein 😀👍🏽 Café Cafe\u0301\u0327s\u00a0😀\u200d!", [("👍🏽", 0), ("Cafe\u0301", 0)]),
]  # fmt: skip


def check_targets(windows, answers):
    """Compares targets with the tokens of the window that overlap an answer's characters."""
    found, longest = [], {}
    for i, places in zip(windows["example_index"], windows["offsets"]):
        begin = answers[i]["answer_start"]
        stop = begin + len(answers[i]["text"])
        is_own = (places[:, 0] >= 0) & (places[:, 1] > begin) & (places[:, 0] < stop)
        found.append(np.flatnonzero(is_own))
        longest[i] = max(longest.get(i, 0), len(found[-1]))
    assert min(longest.values()) > 0
    for i, own, *target in zip(windows["example_index"], found, windows["start"], windows["end"]):
        # A window may lack some of the tokens.
        assert target == ([own[0], own[-1]] if len(own) == longest[i] else [0, 0]), answers[i]


@pytest.mark.parametrize("lowercase", [False, True])
def test_target_is_the_tokens_of_the_annotated_characters_in_every_script(lowercase):
    contexts, answers = [], []
    for context, given in ANSWERS:
        for text, occurrence in given:
            at = -1
            for _ in range(occurrence + 1):
                at = context.index(text, at + 1)
            contexts.append(context)
            answers.append({"text": text, "answer_start": at})
    letters = set("".join("".join(contexts).split()))
    letters |= set(unicodedata.normalize("NFD", "".join([*letters, *map(str.lower, letters)])))
    pieces = [*sorted(letters), "Ann", "ann", "Auto", "auto", "1901", "500", "東京", "서울"]
    vocabulary = [*VOCABULARY, *pieces, *(f"##{piece}" for piece in pieces)]
    tokenizer = ks.SpanBertTokenizer(list(dict.fromkeys(vocabulary)), lowercase=lowercase)
    for arguments in [(96, 32, 3), (20, 7, 3)]:
        preprocessor = ks.SpanBertQuestionAnswererPreprocessor(tokenizer, *arguments)
        check_targets(preprocessor.windows(["who"] * len(contexts), contexts, answers), answers)


def test_windows_equal_the_released_script(shared_data, cased_tokenizer):
    folder = shared_data / "reference"
    examples = squad.read(folder / "squad" / "train_subset.json")
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor(cased_tokenizer, 192, doc_stride=64)
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    with np.load(folder / "squad" / "train_features.npz") as reference:
        names = [examples.ids[i] for i in windows["example_index"]]
        assert names == reference["qas_id"].tolist()
        for name in ["segment_ids", "start", "end"]:
            np.testing.assert_array_equal(windows[name], reference[name], err_msg=name)
        np.testing.assert_array_equal(windows["token_ids"], reference["input_ids"])


def test_offsets_are_exact_for_all_scripts():
    tokenizer = ks.SpanBertTokenizer([*VOCABULARY, "é", "日", "本", "ש", "😀"])
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor(tokenizer, 40, 4, 3)
    context = "a é e\u0301 日本 😀a\u200d ש\u05b8 b\u00a0c\u2028d"
    windows = preprocessor.windows(["who"], [context])
    pieces = [context[begin:end] for begin, end in windows["offsets"][0] if begin >= 0]
    known = [piece for piece in pieces if piece in tokenizer.get_vocabulary()]
    assert known == ["a", "é", "日", "本", "b", "c", "d"]


def test_empty_and_very_long_contexts():
    windows = build().windows(["", "who"], ["a", " \n"])
    np.testing.assert_array_equal(windows["token_ids"][0, :4], ids("[CLS] [SEP] a [SEP]"))
    np.testing.assert_array_equal(windows["token_ids"][1, :4], ids("[CLS] who [SEP] [SEP]"))
    assert (windows["offsets"][1] == -1).all()
    assert build().windows([], [])["token_ids"].shape == (0, 10)
    context = "a b c d e " * 100_000
    windows = ks.SpanBertQuestionAnswererPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), 512, 256
    ).windows(["who"], [context])
    assert windows["is_max_context"].sum() == 500_000
    starts = windows["offsets"][windows["is_max_context"]][:, 0]
    np.testing.assert_array_equal(np.sort(starts), np.arange(0, 1_000_000, 2))
