"""Implements `resolve`: from texts to clusters of mentions with their positions."""

import collections
import dataclasses
import numbers

import numpy as np

from keras_spanbert.data.coreference_documents import has_subtokens
from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.strings import as_strings, replace_surrogates
from keras_spanbert.tasks.coreference import main_mention
from keras_spanbert.tasks.coreference.decoding import cluster_mentions
from keras_spanbert.tasks.coreference.inference import score_documents
from keras_spanbert.tasks.coreference.segments import split_rows
from keras_spanbert.tasks.coreference.splitting import split

NO_SPEAKER = "-"
# Number of texts that are split at once.
_TEXTS = 256


@dataclasses.dataclass
class Text:
    """A text in words.

    Args:
        sentences: lists of words.
        places: int `[words, 2]`, start and end of each word, in characters. `None`
            if the user passed words. Positions of mentions then count words.
        string: the text, or `None` if the user passed words.
    """

    sentences: list[list[str]]
    places: np.ndarray | None = None
    string: str | None = None

    def __post_init__(self):
        self.words = [word for sentence in self.sentences for word in sentence]

    def mention(self, first: int, last: int) -> dict:
        """Returns the mention that starts and ends with the given words."""
        if self.places is None:
            words = self.words[first : last + 1]
            return {"text": " ".join(words), "start": first, "end": last + 1}
        start, end = int(self.places[first, 0]), int(self.places[last, 1])
        return {"text": self.string[start:end], "start": start, "end": end}


def resolve(
    model, texts, speakers, genre, batch_size: int, max_spans_in_memory: int, scores: bool
) -> list:
    """Implements `SpanBertCoreferenceResolver.resolve`."""
    texts = as_texts(texts)
    speakers = _for_each("speakers", speakers, len(texts))
    genres = _genre_numbers(genre, len(texts), model.genres)
    documents = [
        {
            "sentences": [[replace_surrogates(word) for word in words] for words in text.sentences],
            "speakers": _speakers(i, text, speakers[i]),
        }
        for i, text in enumerate(texts)
    ]
    found = find_clusters(model, documents, batch_size, max_spans_in_memory, genres)
    return [{"clusters": _as_dicts(text, clusters, scores)} for text, clusters in zip(texts, found)]


def find_clusters(
    model, documents: list[dict], batch_size: int, max_spans_in_memory: int, genres=None
) -> list:
    """Finds the clusters of documents in words or subtokens.

    Args:
        model: `SpanBertCoreferenceResolver`.
        documents: list of dicts, see the preprocessor's `segment`.
        batch_size, max_spans_in_memory: ints, see `resolve`.
        genres: list of ints, the number of each document's genre. Defaults to `None`:
            by their keys.

    Returns:
        For each document the clusters of `cluster_mentions`, in its words or subtokens.
    """
    check_counts(batch_size=batch_size, max_spans_in_memory=max_spans_in_memory)
    model.check_preprocessor()
    model.warn_if_untrained()
    segmented = [model.preprocessor.segment(document) for document in documents]
    tensors = {
        i: model.preprocessor.tensors(document)
        for i, document in enumerate(segmented)
        if document["sentences"]
    }
    if genres is not None:
        for i in tensors:
            tensors[i]["genre"] = np.int32(genres[i])
    found = score_documents(model, tensors, batch_size, max_spans_in_memory)
    return [
        cluster_mentions(found[i], _word_of(model, *pair), model.singletons) if i in found else []
        for i, pair in enumerate(zip(documents, segmented))
    ]


def _word_of(model, document, segmented):
    """Returns the word of each token, -1 for a separator, or the token's own number."""
    sizes = [len(segment) for segment in segmented["sentences"]]
    if has_subtokens(document):
        return np.arange(sum(sizes), dtype=np.int32)
    word_of = np.array(segmented["subtoken_map"], np.int32)
    if model.model_type == "independent":
        # Segments are stored with a separator at both ends.
        ends = np.cumsum(sizes)
        word_of[np.concatenate([[0], ends[:-1], ends - 1])] = -1
    return word_of


def as_texts(texts) -> list[Text]:
    """Converts strings, or lists of sentences of words, to texts. Splits strings into words."""
    if not isinstance(texts, (list, tuple)):
        texts = as_strings(texts=texts)
    found = [
        None if isinstance(text, str) else _text_from_words(i, text) for i, text in enumerate(texts)
    ]
    strings = [i for i, text in enumerate(found) if text is None]
    for begin in range(0, len(strings), _TEXTS):
        numbers = strings[begin : begin + _TEXTS]
        result = split([replace_surrogates(texts[i]) for i in numbers])
        for i, *parts in zip(numbers, *(rows.to_list() for rows in result)):
            words, starts, ends, sizes = parts
            sentences = split_rows((word.decode() for word in words), sizes)
            found[i] = Text(sentences, np.array([starts, ends], np.int64).T, texts[i])
    return found


def _text_from_words(number, text):
    if not _are_lists_of_strings(text):
        shown = " ".join(repr(text).split())
        raise ValueError(
            "`texts` must be a list of strings, or of lists of sentences, each a list of words. "
            f"Received: texts[{number}]={shown:.80}, of type {type(text).__name__}"
        )
    return Text([list(sentence) for sentence in text])


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


def _genre_numbers(genre, num_texts, genres):
    names = [genre] * num_texts if isinstance(genre, str) else _for_each("genre", genre, num_texts)
    for name in names:
        if name is not None and name not in genres:
            raise ValueError(
                f"`genre` must be one of the resolver's, {list(genres)}. Received: {name!r:.80}"
            )
    return [0 if name is None else list(genres).index(name) for name in names]


def _speakers(number, text, speakers):
    """Returns a name for each word of each sentence."""
    sizes = [len(sentence) for sentence in text.sentences]
    if speakers is None:
        return [[NO_SPEAKER] * size for size in sizes]
    if text.places is None:
        if not _are_lists_of_strings(speakers) or [len(names) for names in speakers] != sizes:
            raise ValueError(
                f"`speakers[{number}]` must be a list of names for each sentence, one for each "
                f"word: {sizes}. Received: {speakers!r:.80}"
            )
        return [list(names) for names in speakers]
    if not isinstance(speakers, (list, tuple)):
        raise ValueError(
            f"`speakers[{number}]` must be a list of (start, end, name). Received: {speakers!r:.80}"
        )
    names = [NO_SPEAKER] * sum(sizes)
    starts = text.places[:, 0]
    for item in speakers:
        is_range = isinstance(item, (list, tuple)) and list(map(_type, item)) == [int, int, str]
        if not is_range or not 0 <= item[0] <= item[1] <= len(text.string):
            raise ValueError(
                f"`speakers[{number}]` must be (start, end, name) in the {len(text.string)} "
                f"characters of the text. Received: {item!r:.80}"
            )
        start, end, name = item
        first, last = np.searchsorted(starts, [start, end])
        names[first:last] = [name] * int(last - first)
    return split_rows(names, sizes)


def _type(value):
    return int if isinstance(value, numbers.Integral) else type(value)


def _as_dicts(text, clusters, with_scores):
    """Returns the clusters of a text in the format of `resolve`."""
    words = text.words
    begins = set(np.cumsum([0, *map(len, text.sentences)]).tolist())
    lower_words = frozenset(word for word in words if word.islower())

    def words_of(places):
        return tuple(words[places[0] : places[1] + 1])

    def rank(places):
        of_mention = words_of(places)
        kind = main_mention.mention_type(of_mention, places[0] in begins, lower_words)
        return main_mention.sort_key(of_mention, kind, places[0], counts[of_mention])

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
