"""From words to the segments of the released scripts."""

import dataclasses
from collections.abc import Sequence

SEPARATOR_SPEAKER = "[SPL]"


@dataclasses.dataclass
class _Piece:
    """A subtoken, or the separator at either end of a segment."""

    token: str
    word: int
    sentence: int
    speaker: str
    is_separator: bool = False


def document_of_words(
    pieces: Sequence[Sequence[str]],
    sentence_sizes: Sequence[int],
    speakers: Sequence[str],
    max_segment_len: int,
    with_separators: bool,
    cls_token: str,
    sep_token: str,
) -> dict:
    """Cuts a document of words into segments.

    A segment takes as many subtokens as fit, cut back to the last end of a
    sentence; where none fits, to the last end of a word; and where not one word
    fits, it ends within it.

    Args:
        pieces: for each word its subtokens, one or more.
        sentence_sizes: the number of words of each sentence.
        speakers: for each word its speaker's name.
        max_segment_len: int, with two separators.
        with_separators: bool. Whether segments are stored with `[CLS]` and
            `[SEP]`, which then count as tokens.
        cls_token, sep_token: strings.

    Returns:
        Dict of the released keys: `sentences` (the segments), `speakers`,
        `sentence_map` and `subtoken_map`; and `word_spans`, for each word its
        first and last subtoken.
    """
    contents, word_ends, sentence_ends = _flattened(pieces, sentence_sizes, speakers)
    # The released script leaves one place more where separators are added later.
    room = max_segment_len - (2 if with_separators else 3)
    segments, previous_word, begin = [], 0, 0
    while begin < len(contents):
        end = _segment_end(begin, room, len(contents), sentence_ends, word_ends)
        segment = contents[begin:end]
        last = segment[-1]
        if with_separators:
            # The sentence counts up behind its last subtoken, and so before the separator.
            next_sentence = last.sentence + (end - 1 in sentence_ends)
            segment = [
                _Piece(cls_token, previous_word, segment[0].sentence, SEPARATOR_SPEAKER, True),
                *segment,
                _Piece(sep_token, last.word, next_sentence, SEPARATOR_SPEAKER, True),
            ]
        segments.append(segment)
        previous_word, begin = last.word, end

    flat = [piece for segment in segments for piece in segment]
    word_spans = {}
    for place, piece in enumerate(flat):
        if not piece.is_separator:
            first, _ = word_spans.get(piece.word, (place, place))
            word_spans[piece.word] = (first, place)
    return {
        "sentences": [[piece.token for piece in segment] for segment in segments],
        "speakers": [[piece.speaker for piece in segment] for segment in segments],
        "sentence_map": [piece.sentence for piece in flat],
        "subtoken_map": [piece.word for piece in flat],
        "word_spans": [word_spans[word] for word in range(len(pieces))],
    }


def _flattened(pieces, sentence_sizes, speakers):
    """All subtokens, and the places of the last ones of words and of sentences."""
    contents, word_ends, sentence_ends = [], set(), set()
    sentences = [number for number, size in enumerate(sentence_sizes) for _ in range(size)]
    for word, (tokens, sentence) in enumerate(zip(pieces, sentences)):
        contents += [_Piece(token, word, sentence, speakers[word]) for token in tokens]
        word_ends.add(len(contents) - 1)
        if word + 1 == len(sentences) or sentences[word + 1] > sentence:
            sentence_ends.add(len(contents) - 1)
    return contents, word_ends, sentence_ends


def _segment_end(begin, room, num_tokens, sentence_ends, word_ends):
    last = min(begin + room, num_tokens) - 1
    for ends in (sentence_ends, word_ends):
        for place in range(last, begin - 1, -1):
            if place in ends:
                return place + 1
    return last + 1
