"""Implements `resolve`: from texts to clusters of mentions with their positions."""

import collections
import itertools
from numbers import Integral
from typing import NamedTuple

import numpy as np

from keras_spanbert.arguments import check_counts
from keras_spanbert.models.strings import as_strings, replace_surrogates
from keras_spanbert.tasks.coreference.decoding import cluster_mentions
from keras_spanbert.tasks.coreference.inference import score_documents
from keras_spanbert.tasks.coreference.mentions import mention_type, sort_key
from keras_spanbert.tasks.coreference.segments import split_rows
from keras_spanbert.tasks.coreference.splitting import split

NO_SPEAKER = "-"
# Number of texts that are split at once.
_TEXTS = 256


class Text(NamedTuple):
    """A text in words."""

    words: list[str]
    sizes: list[int]  # Number of words of each sentence.
    places: np.ndarray  # int [words, 2]: start and end in characters, or in words of no string.
    string: str | None  # `None` if the user passed words.

    def mention(self, first: int, last: int) -> dict:
        """Returns the mention that starts and ends with the given words."""
        start, end = int(self.places[first, 0]), int(self.places[last, 1])
        text = " ".join(self.words[start:end]) if self.string is None else self.string[start:end]
        return {"text": text, "start": start, "end": end}


def as_documents(texts, speakers, genre, allowed: tuple[str, ...]) -> tuple[list[Text], list[dict]]:
    """Converts the arguments of `resolve` to texts and documents. `allowed` are the genres."""
    texts = _as_texts(texts)
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
        }
        for i, text in enumerate(texts)
    ]
    return texts, documents


def find_clusters(model, documents: list[dict], batch_size: int, max_spans_in_memory: int) -> list:
    """Returns the clusters of `cluster_mentions` of documents, in their words or subtokens."""
    check_counts(batch_size=batch_size, max_spans_in_memory=max_spans_in_memory)
    model.check_preprocessor()
    model.warn_if_untrained()
    encoded = [model.preprocessor.encode(document) for document in documents]
    tensors = {i: x for i, (x, _) in enumerate(encoded) if len(x["input_ids"])}
    found = score_documents(model, tensors, batch_size, max_spans_in_memory)
    return [
        cluster_mentions(found[i], word_of, model.singletons) if i in found else []
        for i, (_, word_of) in enumerate(encoded)
    ]


def _as_texts(texts) -> list[Text]:
    """Converts strings, or lists of sentences of words, to texts. Splits strings into words."""
    if not isinstance(texts, (list, tuple)):
        texts = as_strings(texts=texts)
    found = {}
    for i, text in enumerate(texts):
        if isinstance(text, str):
            continue
        if not _are_lists_of_strings(text):
            shown = " ".join(repr(text).split())
            raise ValueError(
                "`texts` must be a list of strings, or of lists of sentences, each a list of "
                f"words. Received: texts[{i}]={shown:.80}, of type {type(text).__name__}"
            )
        words = [*itertools.chain(*text)]
        places = np.arange(len(words))[:, None] + [0, 1]
        found[i] = Text(words, [*map(len, text)], places, None)
    strings = [i for i in range(len(texts)) if i not in found]
    for begin in range(0, len(strings), _TEXTS):
        numbers = strings[begin : begin + _TEXTS]
        result = split([replace_surrogates(texts[i]) for i in numbers])
        for i, *parts in zip(numbers, *(rows.to_list() for rows in result)):
            words, starts, ends, sizes = parts
            places = np.array([starts, ends], np.int64).T
            found[i] = Text([word.decode() for word in words], sizes, places, texts[i])
    return [found[i] for i in range(len(texts))]


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


def as_dicts(text, clusters, with_scores):
    """Returns the clusters of a text in the format of `resolve`."""
    words = text.words
    begins = set(np.cumsum([0, *text.sizes]).tolist())
    lower_words = frozenset(word for word in words if word.islower())

    def words_of(places):
        return tuple(words[places[0] : places[1] + 1])

    def rank(places):
        of_mention = words_of(places)
        kind = mention_type(of_mention, places[0] in begins, lower_words)
        return sort_key(of_mention, kind, places[0], counts[of_mention])

    result = []
    for mention_scores in sorted(clusters, key=min):
        counts = collections.Counter(map(words_of, mention_scores))
        main = min(mention_scores, key=rank)
        places = [main, *sorted(mention_scores.keys() - {main})]
        cluster = [text.mention(*place) for place in places]
        if with_scores:
            for mention, place in zip(cluster, places):
                mention["score"] = mention_scores[place]
        result.append(cluster)
    return result
