"""Implements `resolve`: from texts to clusters of mentions with their positions."""

import bisect
import collections
import itertools
from numbers import Integral
from typing import NamedTuple

import numpy as np

from keras_spanbert.checks import check_counts, check_in, is_integer, is_number
from keras_spanbert.models.strings import as_strings, replace_surrogates
from keras_spanbert.tasks.coreference.decoding import cluster_mentions, mention_links
from keras_spanbert.tasks.coreference.inference import score_documents
from keras_spanbert.tasks.coreference.mentions import NOUN, VERB, is_verb, mention_type, sort_key
from keras_spanbert.tasks.coreference.segments import split_rows
from keras_spanbert.tasks.coreference.splitting import split_text

NO_SPEAKER = "-"


class Text(NamedTuple):
    """A text in words."""

    words: list[str]
    sizes: list[int]  # Number of words of each sentence.
    places: np.ndarray  # int [words, 2]: start and end in characters, or in words of no string.
    string: str | None  # `None` if the user passed words.
    given: dict | None = None  # The positions of given mentions by their first and last words.

    def mention(self, first: int, last: int) -> dict:
        """Returns the mention that starts and ends with the given words."""
        place = int(self.places[first, 0]), int(self.places[last, 1])
        start, end = (self.given or {}).get((first, last), place)
        text = " ".join(self.words[start:end]) if self.string is None else self.string[start:end]
        return {"text": text, "start": start, "end": end}


def as_documents(
    texts, speakers, genre, mentions, allowed: tuple[str, ...]
) -> tuple[list[Text], list[dict]]:
    """Converts the arguments of `resolve` to texts and documents. `allowed` are the genres.

    Given mentions are the `clusters` of their document.
    """
    texts = _as_texts(texts)
    mentions = _for_each("mentions", mentions, len(texts))
    texts = [
        text if given is None else _with_mentions(f"mentions[{i}]", text, given)
        for i, (text, given) in enumerate(zip(texts, mentions))
    ]
    speakers = _for_each("speakers", speakers, len(texts))
    genres = [genre] * len(texts) if isinstance(genre, str) else genre
    genres = _for_each("genre", genres, len(texts))
    for name in genres:
        if name is not None and name not in allowed:
            raise ValueError(
                f"`genre` must be one of the resolver's, {list(allowed)}. Received: {name!r:.80}"
            )
    documents = [
        {
            "doc_key": genres[i] or "",
            "sentences": split_rows(map(replace_surrogates, text.words), text.sizes),
            "speakers": split_rows(_speakers(i, text, speakers[i]), text.sizes),
            **({} if text.given is None else {"clusters": [[*text.given]]}),
        }
        for i, text in enumerate(texts)
    ]
    return texts, documents


def find_clusters(
    model,
    documents: list[dict],
    batch_size: int,
    max_spans_in_memory: int,
    min_link_score: float | None = None,
    has_mentions: bool = False,
) -> list[tuple]:
    """Returns the clusters and links of documents, in their words or subtokens.

    They are the results of `cluster_mentions` and `mention_links`. With `has_mentions`, the
    `clusters` of a document, if it has any, contain the only spans.
    """
    check_counts(batch_size=batch_size, max_spans_in_memory=max_spans_in_memory)
    is_in = min_link_score is None or is_number(min_link_score) and 0 <= min_link_score <= 1
    check_in("min_link_score", min_link_score, is_in, "a number in [0, 1], or None")
    model.check_preprocessor()
    model.warn_if_untrained()
    encoded = [model.preprocessor.encode(document) for document in documents]
    given = {i for i, document in enumerate(documents) if has_mentions and "clusters" in document}
    tensors = {
        i: x
        for i, (x, _) in enumerate(encoded)
        if len(x["input_ids"]) and (i not in given or len(x["gold_starts"]))
    }
    for i in given & tensors.keys():
        _check_widths(f"mentions[{i}]", documents[i], *encoded[i], model.max_span_width)
    found = score_documents(model, tensors, batch_size, max_spans_in_memory, min_link_score, given)
    result = []
    for i, (_, word_of) in enumerate(encoded):
        arguments = found.get(i), word_of, model.singletons, i in given
        is_empty = i not in found
        result.append(
            ([], {}) if is_empty else (cluster_mentions(*arguments), mention_links(*arguments))
        )
    return result


def _as_texts(texts) -> list[Text]:
    """Converts strings, or lists of sentences of words, to texts. Splits strings into words."""
    if not isinstance(texts, (list, tuple)):
        texts = as_strings("texts", texts)
    found = []
    for i, text in enumerate(texts):
        if isinstance(text, str):
            words, starts, ends, sizes = split_text(replace_surrogates(text))
            found.append(Text(words, sizes, np.array([starts, ends], np.int64).T, text))
            continue
        if not _are_lists_of_strings(text):
            shown = " ".join(repr(text).split())
            raise ValueError(
                "`texts` must be a list of strings, or of lists of sentences, each a list of "
                f"words. Received: texts[{i}]={shown:.80}, of type {type(text).__name__}"
            )
        words = [*itertools.chain(*text)]
        places = np.arange(len(words))[:, None] + [0, 1]
        found.append(Text(words, [*map(len, text)], places, None))
    return found


def _with_mentions(name, text, given):
    """Returns a text with given mentions. Words are cut where mentions start or end in them."""
    size, unit = (
        (len(text.words), "words") if text.string is None else (len(text.string), "characters")
    )
    spans = given.tolist() if isinstance(given, np.ndarray) else given
    for span in spans if isinstance(spans, (list, tuple)) else [spans]:
        is_pair = isinstance(span, (list, tuple)) and len(span) == 2 and all(map(is_integer, span))
        if not is_pair or not 0 <= span[0] < span[1] <= size:
            raise ValueError(
                f"`{name}` must be a list of (start, end), not empty and in the {size} {unit} of "
                f"the text. Received: {span!r:.80}"
            )
    if text.string is not None:
        text = _cut_words(text, sorted({int(place) for span in spans for place in span}))
    found = {}
    for start, end in spans:
        first = int(np.searchsorted(text.places[:, 1], start, "right"))
        last = int(np.searchsorted(text.places[:, 0], end)) - 1
        if first > last:
            raise ValueError(
                f"A mention in `{name}` must contain a word. Received: {(start, end)}, "
                f"{text.string[start:end]!r:.80}"
            )
        found.setdefault((first, last), (int(start), int(end)))
    return text._replace(given=found)


def _cut_words(text, cuts):
    """Returns a text whose words do not extend beyond any of the sorted positions `cuts`."""
    sizes, places = [], []
    for sentence in split_rows(text.places.tolist(), text.sizes):
        sizes.append(-len(places))
        for start, end in sentence:
            inner = cuts[bisect.bisect_right(cuts, start) : bisect.bisect_left(cuts, end)]
            places += itertools.pairwise([start, *inner, end])
        sizes[-1] += len(places)
    words = [text.string[start:end] for start, end in places]
    return Text(words, sizes, np.array(places, np.int64).reshape(-1, 2), text.string)


def _check_widths(name, document, tensors, word_of, max_span_width):
    """Raises a `ValueError` if a given mention has too many tokens."""
    starts, ends = tensors["gold_starts"], tensors["gold_ends"]
    widest = np.argmax(ends - starts)
    start, end = starts[widest], ends[widest]
    if end - start >= max_span_width:
        words = [*itertools.chain(*document["sentences"])][word_of[start] : word_of[end] + 1]
        raise ValueError(
            f"A mention in `{name}` must have at most the resolver's `max_span_width` of "
            f"{max_span_width} tokens, separators of segments included. Received: "
            f"{end - start + 1} tokens, {' '.join(words)!r:.80}"
        )


def _are_lists_of_strings(value):
    return isinstance(value, (list, tuple)) and all(
        isinstance(row, (list, tuple)) and all(isinstance(item, str) for item in row)
        for row in value
    )


def _for_each(name, values, num_texts):
    if values is None:
        return [None] * num_texts
    if not isinstance(values, (list, tuple)) or len(values) != num_texts:
        size = len(values) if isinstance(values, (list, tuple)) else f"{values!r:.80}"
        raise ValueError(
            f"`{name}` must be a list with an item, or None, for each of the {num_texts} texts. "
            f"Received: {size}"
        )
    return values


def _speakers(number, text, given):
    """Returns a name for each word."""
    names = [NO_SPEAKER] * len(text.words)
    if given is None:
        return names
    if text.string is None:
        if not _are_lists_of_strings(given) or [*map(len, given)] != text.sizes:
            raise ValueError(
                f"`speakers[{number}]` must be a list of names for each sentence, one for each "
                f"word: {text.sizes}. Received: {given!r:.80}"
            )
        return [*itertools.chain(*given)]
    size = len(text.string)
    for item in given if isinstance(given, (list, tuple)) else [given]:
        match item:
            case [Integral() as start, Integral() as end, str() as name] if (
                0 <= start <= end <= size
            ):
                first, last = np.searchsorted(text.places[:, 0], [start, end])
                names[first:last] = [name] * int(last - first)
            case _:
                raise ValueError(
                    f"`speakers[{number}]` must be a list of (start, end, name), in the {size} "
                    f"characters of the text. Received: {item!r:.80}"
                )
    return names


def as_dicts(text, clusters, links, with_scores):
    """Returns the clusters of a text in the format of `resolve`."""
    words = text.words
    begins = set(np.cumsum([0, *text.sizes]).tolist())
    lower_words = frozenset(word for word in words if word.islower())

    def words_of(places):
        return tuple(words[places[0] : places[1] + 1])

    def word_at(place):
        return words[place] if 0 <= place < len(words) else ""

    def rank(places):
        of_mention = words_of(places)
        kind = mention_type(of_mention, places[0] in begins, lower_words)
        if kind == NOUN and is_verb(of_mention, word_at(places[0] - 1), word_at(places[1] + 1)):
            kind = VERB
        return sort_key(of_mention, kind, places[0], counts[of_mention])

    result = []
    for mention_scores in sorted(clusters, key=min):
        counts = collections.Counter(map(words_of, mention_scores))
        main = min(mention_scores, key=rank)
        places = [main, *sorted(mention_scores.keys() - {main})]
        cluster = [text.mention(*place) for place in places]
        if with_scores:
            for mention, place in zip(cluster, places):
                antecedent, link_score = links.get(place, (None, None))
                mention["score"] = mention_scores[place]
                mention["link_score"] = link_score
                mention["antecedent"] = antecedent and text.mention(*antecedent)
        result.append(cluster)
    return result
