"""From texts to clusters of mentions at their places: the body of `resolve`."""

import collections
import dataclasses
import itertools
import numbers

import numpy as np

from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.strings import as_strings, well_formed
from keras_spanbert.tasks.coreference import main_mention
from keras_spanbert.tasks.coreference.batches import Settings, document_inputs, pad, sizes_of
from keras_spanbert.tasks.coreference.decoding import best_antecedents, clusters_of
from keras_spanbert.tasks.coreference.parts import largest, score_parts
from keras_spanbert.tasks.coreference.spans import MOST_TOP_SPANS
from keras_spanbert.tasks.coreference.splitting import split

NO_SPEAKER = "-"
# Texts that are split at once.
_TEXTS = 256


@dataclasses.dataclass
class Text:
    """A text in words.

    Args:
        sentences: lists of words.
        places: int `[words, 2]`, start and end of each word, in characters; `None`
            where the user gave words, which are then the places themselves.
        string: the text, or `None` likewise.
    """

    sentences: list[list[str]]
    places: np.ndarray | None = None
    string: str | None = None

    def __post_init__(self):
        self.words = [word for sentence in self.sentences for word in sentence]

    def mention(self, first: int, last: int) -> dict:
        """The mention from one word to another one."""
        if self.places is None:
            words = self.words[first : last + 1]
            return {"text": " ".join(words), "start": first, "end": last + 1}
        start, end = int(self.places[first, 0]), int(self.places[last, 1])
        return {"text": self.string[start:end], "start": start, "end": end}


def resolve(
    model, settings: Settings, texts, speakers, genre, batch_size: int, max_spans: int, scores: bool
) -> list:
    """The body of `SpanBertCoreferenceResolver.resolve`, with the settings of its inputs."""
    check_counts(batch_size=batch_size, max_spans=max_spans)
    model.check_preprocessor()
    texts = as_texts(texts)
    speakers = _for_each("speakers", speakers, len(texts))
    genres = _genre_numbers(genre, len(texts), model.genres)
    speakers = [_speakers(*x) for x in zip(itertools.count(), texts, speakers)]
    model.warn_if_untrained()
    documents, tensors = {}, {}
    for i, text in enumerate(texts):
        if not text.words:
            continue
        sentences = [[well_formed(word) for word in sentence] for sentence in text.sentences]
        documents[i] = model.preprocessor.segment({"sentences": sentences, "speakers": speakers[i]})
        tensors[i] = {
            **model.preprocessor.tensors(documents[i]),
            "genre": np.int32(genres[i]),
        }
    found = score_documents(model, tensors, settings, batch_size, max_spans)
    return [
        {"clusters": _clusters(model, text, documents[i], found[i], scores) if i in found else []}
        for i, text in enumerate(texts)
    ]


def as_texts(texts) -> list[Text]:
    """Texts of strings, or of lists of sentences of words, each split where it is not."""
    if not isinstance(texts, (list, tuple)):
        texts = as_strings(texts=texts)
    found = [None if isinstance(text, str) else _of_words(i, text) for i, text in enumerate(texts)]
    strings = [i for i, text in enumerate(found) if text is None]
    for begin in range(0, len(strings), _TEXTS):
        numbers = strings[begin : begin + _TEXTS]
        result = split([well_formed(texts[i]) for i in numbers])
        for i, *parts in zip(numbers, *(rows.to_list() for rows in result)):
            words, starts, ends, sizes = parts
            words = iter(word.decode() for word in words)
            sentences = [list(itertools.islice(words, size)) for size in sizes]
            found[i] = Text(sentences, np.array([starts, ends], np.int64).T, texts[i])
    return found


def _of_words(number, text):
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
    """A name for each word of each sentence."""
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
    names = iter(names)
    return [list(itertools.islice(names, size)) for size in sizes]


def _type(value):
    return int if isinstance(value, numbers.Integral) else type(value)


def score_documents(
    model, documents: dict[int, dict], settings: Settings, batch_size: int, max_spans: int
) -> dict[int, dict]:
    """The spans that are kept of each document, with their best antecedents.

    Documents of not more than `max_spans` spans go through the whole graph, several
    of like size at once but not more spans than that; longer ones go in parts.

    Args:
        model: `SpanBertCoreferenceResolver`.
        documents: dicts of `tensorize`, by number.
        settings: `Settings`.
        batch_size, max_spans: ints.

    Returns:
        Dicts of `score_parts`, by the same numbers.
    """
    num_spans = {
        # Not `num_top_spans`, which ends at the most that the released graph keeps.
        number: int(tensors["text_len"].sum() * settings.top_span_ratio)
        for number, tensors in documents.items()
    }
    # The whole graph keeps no more.
    max_whole = min(max_spans, MOST_TOP_SPANS)
    found, short = {}, []
    for number in sorted(documents, key=num_spans.__getitem__, reverse=True):
        if num_spans[number] > max_whole:
            found[number] = score_parts(model, documents[number], settings, max_spans)
        else:
            short.append(number)
    while short:
        num_rows = max(min(batch_size, max_spans // max(num_spans[short[0]], 1)), 1)
        batch, short = short[:num_rows], short[num_rows:]
        inputs = [document_inputs(documents[number], settings)[0] for number in batch]
        found.update(zip(batch, _score_batch(model, inputs, settings)))
    return found


def _score_batch(model, inputs, settings):
    sizes = largest(sizes_of(x, settings) for x in inputs)
    rows = [pad(x, np.zeros(0, np.int32), sizes, settings)[0] for x in inputs]
    outputs = model.predict_on_batch({n: np.concatenate([r[n] for r in rows]) for n in rows[0]})
    outputs = {name: np.asarray(array) for name, array in outputs.items()}
    for row, of_one in enumerate(inputs):
        num_top = len(of_one["top_span_mask"])
        top = outputs["top_spans"][row, :num_top]
        yield {
            "starts": of_one["starts"][top],
            "ends": of_one["ends"][top],
            "mention_scores": outputs["candidate_mention_scores"][row][top],
            "best_antecedents": best_antecedents(
                outputs["top_antecedent_scores"][row, :num_top],
                outputs["top_antecedents"][row, :num_top],
            ),
        }


def clusters_of_words(model, document: dict, spans: dict) -> list[dict]:
    """The clusters of a document in words, each mention in one of them.

    Args:
        model: `SpanBertCoreferenceResolver`.
        document: dict, segmented.
        spans: dict of `score_documents`.

    Returns:
        List of dicts of `(first, last)` word to the score as a mention.
    """
    first_word, last_word = _words_of_tokens(document, model.model_type)
    clusters = clusters_of(
        range(len(spans["starts"])),
        spans["best_antecedents"],
        spans["mention_scores"] if model.singletons else None,
    )
    taken, found = set(), []
    for cluster in clusters:
        mentions = {}
        for span in cluster:
            first = int(first_word[spans["starts"][span]])
            last = int(last_word[spans["ends"][span]])
            # Of separators alone, or of the same words as another one.
            if first <= last and (first, last) not in taken:
                score = float(spans["mention_scores"][span])
                mentions[first, last] = max(score, mentions.get((first, last), score))
        taken.update(mentions)
        if len(mentions) >= (1 if model.singletons else 2):
            found.append(mentions)
    return found


def _clusters(model, text, document, spans, with_scores):
    """The clusters of a text as `resolve` gives them."""
    words = text.words
    begins = set(np.cumsum([0, *map(len, text.sentences)]).tolist())
    lower_words = frozenset(word for word in words if word.islower())

    def words_of(places):
        return tuple(words[places[0] : places[1] + 1])

    def rank(places):
        of_mention = words_of(places)
        kind = main_mention.kind_of(of_mention, places[0] in begins, lower_words)
        return main_mention.rank(of_mention, kind, places[0], counts[of_mention])

    result = []
    for mention_scores in sorted(clusters_of_words(model, document, spans), key=min):
        counts = collections.Counter(map(words_of, mention_scores))
        main = min(mention_scores, key=rank)
        places = [main, *sorted(mention_scores.keys() - {main})]
        cluster = [text.mention(*place) for place in places]
        if with_scores:
            for mention, place in zip(cluster, places):
                mention["score"] = mention_scores[place]
        result.append(cluster)
    return result


def _words_of_tokens(document, model_type):
    """For each token of a segmented document the first word from it on, and the last up to it."""
    word_of = np.array(document["subtoken_map"], np.int64)
    if model_type == "overlap":
        return word_of, word_of
    # Segments are stored with a separator at either end, which is no word.
    sizes = [len(segment) for segment in document["sentences"]]
    ends = np.cumsum(sizes)
    is_separator = np.zeros(len(word_of), bool)
    is_separator[ends - sizes] = is_separator[ends - 1] = True
    places = np.arange(len(word_of))
    following = np.minimum.accumulate(np.where(is_separator, len(word_of), places)[::-1])[::-1]
    before = np.maximum.accumulate(np.where(is_separator, -1, places))
    first = np.where(following < len(word_of), word_of[following % len(word_of)], len(word_of))
    return first, np.where(before >= 0, word_of[before], -1)
