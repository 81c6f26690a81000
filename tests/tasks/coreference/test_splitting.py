import gzip
import time

import pytest
import tensorflow as tf

from keras_spanbert.tasks.coreference.splitting import split


def sentences_of(texts):
    """Sentences of words, each word checked to be the slice at its place."""
    found = split(texts)
    for text, words, starts, ends, sizes in zip(texts, *found):
        words = [word.decode() for word in words.numpy()]
        starts, ends, sizes = (x.numpy().tolist() for x in (starts, ends, sizes))
        assert words == [text[start:end] for start, end in zip(starts, ends)]
        assert all(words) and starts == sorted(starts) and sum(sizes) == len(words)
        assert min(sizes, default=1) > 0
        words = iter(words)
        yield [[next(words) for _ in range(size)] for size in sizes]


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "Mr. Bennet and Dr. J. R. Smith left. So did I.",
            ["Mr. Bennet and Dr. J. R. Smith left .", "So did I ."],
        ),
        (
            '"Go!" she said. "I won\'t." He left.',
            ['" Go ! " she said .', '" I wo n\'t . "', "He left ."],
        ),
        ("“Go!!” said he. ‘No…’ ”Oh?”", ["“ Go ! ! ” said he .", "‘ No … ’", "” Oh ? ”"]),
        (
            "At 5 p.m. he left, e.g. for Paris, etc. and so on.",
            ["At 5 p.m. he left , e.g. for Paris , etc. and so on ."],
        ),
        (
            "The U.S. troops came. They lost 3.5 to 1,000.",
            ["The U.S. troops came .", "They lost 3.5 to 1,000 ."],
        ),
        (
            "Well... perhaps. Oh . . . Yes! (He left.) She [stayed.] «Oui.» Ja",
            [
                "Well ... perhaps .",
                "Oh . . . Yes !",
                "( He left . )",
                "She [ stayed . ]",
                "« Oui . »",
                "Ja",
            ],
        ),
        (
            "Ann's boys' o'clock: they’ll can’t to-morrow -- so",
            ["Ann 's boys ' o'clock : they ’ll ca n’t to-morrow -- so"],
        ),
        ("CHAPTER I\n\nIt was\nlate\r\n \r\nthen", ["CHAPTER I", "It was late", "then"]),
        (
            "É. Zola a été là. 你好。我们走。「行。」😀👨‍👩‍👧👍🏽",
            ["É. Zola a été là .", "你 好 。", "我 们 走 。", "「 行 。 」", "😀 👨‍👩‍👧 👍🏽"],
        ),
        ("a\x00b\x02s \x07 c\u00a0d\u3000e", ["a b s c d e"]),
        ("", []),
        (" \r\n\t\u2003", []),
        ("word", ["word"]),
    ],
)
def test_sentences_and_words(text, expected):
    (sentences,) = sentences_of([text])
    assert [" ".join(words) for words in sentences] == expected


def test_a_text_is_split_as_it_is_alone():
    texts = ["é. Ann left.", "", "Bob", "「行。」", " ", "He did.\n\nShe\n\n"]
    assert list(sentences_of(texts)) == [next(sentences_of([text])) for text in texts]
    assert list(sentences_of(["", ""])) == [[], []]


def test_graph_code_gives_the_same():
    texts = ["“Oh!” said Ann’s 😀. He did.", "", "Mr. X"]
    in_graph = tf.function(split, input_signature=[tf.TensorSpec([None], tf.string)])
    for graph, eager in zip(in_graph(tf.constant(texts)), split(texts)):
        assert graph.to_list() == eager.to_list()


@pytest.mark.parametrize("part", ["a", ".", "a. ", "é", " ", "n't", "A.", "''", "!", "\n"])
def test_long_line_takes_no_more_than_linear_time(part):
    seconds = []
    for size in [40_000, 400_000]:
        begin = time.perf_counter()
        split([part * (size // len(part.encode()))])
        seconds.append(time.perf_counter() - begin)
    assert seconds[1] < 30 * seconds[0] + 0.5


def test_novels_are_split_like_litbank(shared_data):
    text = gzip.open(shared_data / "data/novels/1342_pride_and_prejudice.txt.gz", "rt").read()
    (sentences,) = sentences_of([text])
    longest = max(map(len, sentences))
    assert 5_000 < len(sentences) < 7_000 and longest < 250
    first = " ".join(sentences[1])
    assert first.startswith("It is a truth") and first.endswith("in want of a wife .")
