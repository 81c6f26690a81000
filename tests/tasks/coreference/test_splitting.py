import time
import unicodedata

import numpy as np
import pytest
import regex

from keras_spanbert.tasks.coreference.splitting import SENTENCE_TERMINALS, split, split_text


def split_sentences(texts):
    """Returns sentences of words.

    Checks that each word is the slice at its position, and that graph code and `split_text` agree.
    """
    found = split(texts)
    for text, words, starts, ends, sizes in zip(texts, *found):
        words = [word.decode() for word in words.numpy()]
        starts, ends, sizes = (x.numpy().tolist() for x in (starts, ends, sizes))
        assert words == [text[start:end] for start, end in zip(starts, ends)]
        assert split_text(text) == (words, starts, ends, sizes)
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
        ("Oh?!! said Tom. We ran.", "Oh ? ! ! said Tom .|We ran ."),
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
        # Stops of other scripts.
        ("你好吗？我很好！“行。”他走了。“好的。”",
         "你 好 吗 ？|我 很 好 ！|“ 行 。 ”|他 走 了 。|“ 好 的 。 ”"),
        ("他说：‘行！’她笑了。（真的。）【好。】走",
         "他 说 ： ‘ 行 ！ ’|她 笑 了 。|（ 真 的 。 ）|【 好 。 】|走"),
        ("「はい！」と言った。『彼は？！』ok｡３．５",
         "「 はい ！ 」|と 言 った 。|『 彼 は ？ ！ 』|ok ｡|３．５"),
        ("안녕하세요. 나는 갔다!", "안녕하세요 .|나는 갔다 !"),
        ("كيف حالك؟ «نعم.» أنا بخير! ہاں۔”جی۔“ میں",
         "كيف حالك ؟|« نعم . »|أنا بخير !|ہاں ۔ ”|جی ۔ “|میں"),
        ("Ինչպե՞ս ես։ Լավ եմ։ Ո՞վ՞ Ես", "Ինչպե ՞ ս ես ։|Լավ եմ ։|Ո ՞ վ ՞|Ես"),
        ("ဟုတ်ကဲ့။ မဟုတ်ဘူး။", "ဟုတ်ကဲ့ ။|မဟုတ်ဘူး ။"),
        ("สวัสดี ครับ", "สวัสดี ครับ"),
        ("Πού; Εδώ. «Πού;» ρώτησε. a; B", "Πού ;|Εδώ .|« Πού ; » ρώτησε .|a ; B"),
        ("„Er ging.“ Dann kam „sie!“ sagte er.", "„ Er ging . “|Dann kam „ sie ! “ sagte er ."),
        ("Он ушёл… «Да!» — сказал он. Нет", "Он ушёл …|« Да ! »|— сказал он .|Нет"),
    ],
)  # fmt: skip
def test_sentences_and_words(text, expected):
    (sentences,) = split_sentences([text])
    assert "|".join(" ".join(words) for words in sentences) == expected


def test_every_sentence_terminal_ends_a_sentence():
    listed = set()
    for codes in SENTENCE_TERMINALS.split():
        first, last = (int(code, 16) for code in (codes.split("-") * 2)[:2])
        listed.update(map(chr, range(first, last + 1)))
    every = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    assert listed == {c for c in every if regex.match(r"\p{Sentence_Terminal}", c)}
    found = split_sentences([f"Ann {stop}」 Bob" for stop in sorted(listed)])
    assert all([sentence[-1] for sentence in x] == ["」", "Bob"] for x in found)


def test_graph_code_agrees_on_any_characters():
    generator = np.random.default_rng(0)
    every = [chr(code) for code in range(0x30000)]
    # Python 3.11 has Unicode 14. RE2 does not know newer characters either.
    every = [c for c in every if unicodedata.category(c) not in ("Cs", "Cn")]
    common = [*"aab中行'tTsxI.!?…  \n\n()\"“”’»«-,;:。！」१؟।0"]
    texts = ["".join(generator.choice(common, 30)) for _ in range(120)]
    texts += ["".join(generator.choice(every + common * 3000, 20)) for _ in range(120)]
    texts += ["", " \r\n\t\u2003", "He did.\n\nShe\n\n"]
    assert list(split_sentences(texts))[-3:] == [[], [], [["He", "did", "."], ["She"]]]
    assert list(split_sentences(["", ""])) == [[], []]


@pytest.mark.long
@pytest.mark.parametrize("part", ["a", ".", "a. ", "é", " ", "n't", "A.", "''", "!", "\n"])
@pytest.mark.parametrize("split", [lambda text: split([text]), split_text])
def test_long_line_takes_linear_time(part, split):
    seconds = []
    for size in [40_000, 400_000]:
        begin = time.process_time()
        split(part * (size // len(part.encode())))
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 30 * seconds[0] + 0.5
