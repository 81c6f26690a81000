import gzip
import time

import pytest

from keras_spanbert.tasks.coreference.splitting import split


def split_sentences(texts):
    """Returns sentences of words, and checks that each word is the slice at its position."""
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
        ("Mr. Hill and Dr. J. R. Smith left. So did I.",
         "Mr. Hill and Dr. J. R. Smith left .|So did I ."),
        ('"Go!" she said. "I won\'t." He left.', '" Go ! " she said .|" I wo n\'t . "|He left .'),
        ("“Go!!” said he. ‘No…’ ”Oh?”", "“ Go ! ! ” said he .|‘ No … ’|” Oh ? ”"),
        ("At 5 p.m. he left, e.g. for Rome, etc. and so on.",
         "At 5 p.m. he left , e.g. for Rome , etc. and so on ."),
        ("The U.S. troops came. They lost 3.5 to 1,000.",
         "The U.S. troops came .|They lost 3.5 to 1,000 ."),
        ("Well... so. Oh . . . Yes! (He left.) She [sat.] «Oui.» Ja",
         "Well ... so .|Oh . . . Yes !|( He left . )|She [ sat . ]|« Oui . »|Ja"),
        ("Ann's boys' o'clock: they’ll can’t to-day -- so",
         "Ann 's boys ' o'clock : they ’ll ca n’t to-day -- so"),
        ("CHAPTER I\n\nIt was\nlate\r\n \r\nthen", "CHAPTER I|It was late|then"),
        ("É. Zola a été là. 你好。我们走。「行。」😀👨‍👩‍👧👍🏽",
         "É. Zola a été là .|你 好 。|我 们 走 。|「 行 。 」|😀 👨‍👩‍👧 👍🏽"),
        ("a\x00b\x02s \x07 c\u00a0d\u3000e", "a b s c d e"),
    ],
)  # fmt: skip
def test_sentences_and_words(text, expected):
    (sentences,) = split_sentences([text])
    assert "|".join(" ".join(words) for words in sentences) == expected


def test_batches_equal_single_texts():
    texts = ["é. Ann left.", "", "Bob", "「行。」", " \r\n\t\u2003", "He did.\n\nShe\n\n"]
    found = list(split_sentences(texts))
    assert found == [next(split_sentences([text])) for text in texts]
    assert found[1] == found[4] == [] and found[2] == [["Bob"]]
    assert list(split_sentences(["", ""])) == [[], []]


@pytest.mark.long
@pytest.mark.parametrize("part", ["a", ".", "a. ", "é", " ", "n't", "A.", "''", "!", "\n"])
def test_long_line_takes_linear_time(part):
    seconds = []
    for size in [40_000, 400_000]:
        begin = time.process_time()
        split([part * (size // len(part.encode()))])
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 30 * seconds[0] + 0.5


def test_novels_are_split_similarly_to_litbank(shared_data):
    text = gzip.open(shared_data / "data/novels/1342_pride_and_prejudice.txt.gz", "rt").read()
    (sentences,) = split_sentences([text])
    longest = max(map(len, sentences))
    assert 5_000 < len(sentences) < 7_000 and longest < 250
    first = " ".join(sentences[1])
    assert first.startswith("It is a truth") and first.endswith("in want of a wife .")
