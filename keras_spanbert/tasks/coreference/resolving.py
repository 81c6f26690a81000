"""Resolves documents and texts: from their arguments to clusters of mentions."""

import bisect
import collections
import itertools
import math
import random
from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import (
    accepts_datasets,
    check_counts,
    check_flags,
    check_in,
    check_kind,
    check_none,
    is_integer,
    is_number,
)
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.coreference_documents import check_has_clusters
from keras_spanbert.metrics.coreference import MEASURES, coreference
from keras_spanbert.tasks.coreference.inference import (
    Documents,
    cluster_mentions,
    document_inputs,
    gold_clusters,
    predict_rows,
    score_in_chunks,
)
from keras_spanbert.tasks.coreference.layers import MAX_TOP_SPANS
from keras_spanbert.tasks.coreference.preprocessor import split_rows
from keras_spanbert.tasks.coreference.splitting import split_text
from keras_spanbert.text.strings import as_strings, replace_surrogates

NO_SPEAKER = "-"
_PRONOUNS = frozenset(
    "my mine thy thine your yours his her hers its our ours their theirs who whom whose which what "
    "that myself thyself yourself himself herself itself oneself themself ourself ourselves "
    "yourselves themselves hisself theirselves i me thou thee ye you he him she it we us they them "
    "'em one this these those each other another both all some any none".split()
)
_ARTICLES = frozenset("the a an".split())
# Words that start or join a clause. A name ends before them.
_JOINTS = frozenset('who whom whose which that where when , ; : ( ) -- — – - " “ ” ...'.split())
NAME, NOUN, PRONOUN = range(3)


class Text(NamedTuple):
    """A text in words."""

    words: list[str]
    sizes: list[int]  # Number of words of each sentence.
    places: np.ndarray  # int [words, 2]: start and end in characters, or in words of no string.
    string: str | None  # `None` if the user passed words.
    given: dict | None = None  # The positions of given mentions by their first and last words.


def as_documents(
    texts, speakers, genre, mentions, allowed: tuple[str, ...]
) -> tuple[list[Text], list[dict]]:
    """Converts the arguments of `resolve` to texts and documents. `allowed` are the genres.

    Given mentions are the `clusters` of their document.
    """
    if not isinstance(texts, (list, tuple)):
        texts = as_strings("texts", texts)
    genres = [genre] * len(texts) if isinstance(genre, str) else genre
    columns = []
    for name, values in [("speakers", speakers), ("genre", genres), ("mentions", mentions)]:
        is_list = isinstance(values, (list, tuple))
        if values is not None and not (is_list and len(values) == len(texts)):
            raise ValueError(
                f"`{name}` must be a list with an item, or None, for each of the {len(texts)} "
                f"texts. Received: {len(values) if is_list else f'{values!r:.80}'}"
            )
        columns.append([None] * len(texts) if values is None else values)
    found, documents = [], []
    for i, (text, names, genre, given) in enumerate(zip(texts, *columns)):
        if isinstance(text, str):
            words, starts, ends, sizes = split_text(replace_surrogates(text))
            text = Text(words, sizes, np.array([starts, ends], np.int64).T, text)
        else:
            rule = "a string, or a list of sentences, each a list of words"
            check_kind(f"texts[{i}]", text, _are_lists_of_strings(text), rule)
            words = [*itertools.chain(*text)]
            text = Text(words, [*map(len, text)], np.arange(len(words))[:, None] + [0, 1], None)
        is_right = genre is None or genre in allowed
        check_in("genre", genre, is_right, f"one of the resolver's, {list(allowed)}")
        document = {"doc_key": genre or ""}
        if given is not None:
            text = _with_mentions(f"mentions[{i}]", text, given)
            document["clusters"] = [[*text.given]]
        if names is not None:
            document["speakers"] = _speakers(f"speakers[{i}]", text, names)
        document["sentences"] = split_rows(map(replace_surrogates, text.words), text.sizes)
        found.append(text)
        documents.append(document)
    return found, documents


def find_clusters(
    model,
    documents: list[dict],
    batch_size: int,
    max_spans_in_memory: int,
    min_link_score: float | None = None,
    has_mentions: bool = False,
) -> list[tuple]:
    """Returns the clusters and links of documents: see `cluster_mentions`.

    Documents with at most `max_spans_in_memory` spans are scored whole, in batches with at most
    that many spans, and longer ones in chunks. With `has_mentions`, the `clusters` of a document,
    if it has any, contain the only spans.
    """
    check_counts(batch_size=batch_size, max_spans_in_memory=max_spans_in_memory)
    is_in = min_link_score is None or is_number(min_link_score) and 0 <= min_link_score <= 1
    check_in("min_link_score", min_link_score, is_in, "a number in [0, 1], or None")
    model.check_preprocessor()
    model.warn_if_untrained()
    encoded = [model.preprocessor.encode(document) for document in documents]
    given = {i for i, document in enumerate(documents) if has_mentions and "clusters" in document}
    num_spans = {}
    for i, (tensors, word_of) in enumerate(encoded):
        num_given = len(tensors["gold_starts"]) if i in given else None
        if num_given:
            _check_widths(f"mentions[{i}]", documents[i], tensors, word_of, model.max_span_width)
        if len(word_of) and num_given != 0:
            # Not `num_top_spans`, which is limited to the maximum of the released graph.
            num_spans[i] = max(int(len(word_of) * model.top_span_ratio), num_given or 0)
    found = [([], {})] * len(documents)
    waiting = sorted(num_spans, key=num_spans.__getitem__, reverse=True)
    while waiting:
        most = num_spans[waiting[0]]
        # The graph for whole documents keeps at most `MAX_TOP_SPANS`.
        in_chunks = most > min(max_spans_in_memory, MAX_TOP_SPANS)
        num_rows = 1 if in_chunks else min(batch_size, max_spans_in_memory // max(most, 1))
        batch, waiting = waiting[:num_rows], waiting[num_rows:]
        if in_chunks:
            options = max_spans_in_memory, min_link_score, batch[0] in given
            spans = [score_in_chunks(model, encoded[batch[0]][0], *options)]
        else:
            rows = [document_inputs(encoded[i][0], model, given=i in given) for i in batch]
            spans = predict_rows(model, rows, min_link_score)
        for i, of_document in zip(batch, spans):
            word_of = encoded[i][1]
            found[i] = cluster_mentions(of_document, word_of, model.singletons, i in given)
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


def _speakers(name, text, given):
    """Returns a name for each word of each sentence."""
    if text.string is None:
        are_names = _are_lists_of_strings(given) and [*map(len, given)] == text.sizes
        rule = f"a list of names for each sentence, one for each word: {text.sizes}"
        check_in(name, given, are_names, rule)
        return [*map(list, given)]
    names, size = [NO_SPEAKER] * len(text.words), len(text.string)
    for item in given if isinstance(given, (list, tuple)) else [given]:
        match item:
            case [Integral() as start, Integral() as end, str() as of_it] if (
                0 <= start <= end <= size
            ):
                first, last = np.searchsorted(text.places[:, 0], [start, end])
                names[first:last] = [of_it] * int(last - first)
            case _:
                raise ValueError(
                    f"`{name}` must be a list of (start, end, name), in the {size} characters of "
                    f"the text. Received: {item!r:.80}"
                )
    return split_rows(names, text.sizes)


def as_dicts(text, clusters, links, with_scores):
    """Returns the clusters of a text in the format of `resolve`."""
    begins = set(np.cumsum([0, *text.sizes]).tolist())
    lower_words = frozenset(word for word in text.words if word.islower())
    result = []
    for mention_scores in sorted(clusters, key=min):
        words = {(i, j): tuple(text.words[i : j + 1]) for i, j in mention_scores}
        counts = collections.Counter(words.values())
        keys, mentions = {}, {}
        for place, own in words.items():
            first, last = place
            keys[place] = sort_key(own, first, counts[own], first in begins, lower_words)
            start, end = int(text.places[first, 0]), int(text.places[last, 1])
            start, end = (text.given or {}).get(place, (start, end))
            shown = " ".join(own) if text.string is None else text.string[start:end]
            mentions[place] = {"text": shown, "start": start, "end": end}
        main = min(keys, key=keys.__getitem__)
        places = [main, *sorted(mention_scores.keys() - {main})]
        cluster = [{**mentions[place]} for place in places]
        if with_scores:
            for mention, place in zip(cluster, places):
                antecedent, link_score = links.get(place, (None, None))
                mention["score"] = mention_scores[place]
                mention["link_score"] = link_score
                mention["antecedent"] = antecedent and {**mentions[antecedent]}
        result.append(cluster)
    return result


def sort_key(
    words: Sequence[str], start: int, count: int, begins_sentence: bool, lower_words: frozenset
) -> tuple:
    """Returns the sort key of a cluster's mentions, which begins with the kind of the mention.

    The best mention has the lowest key. `lower_words` are the words of the text that occur in lower
    case.
    """
    lower = [word.lower() for word in words]
    # A name's first word after articles is capitalized, not only because it starts a sentence.
    place = next((i for i, word in enumerate(lower) if word not in _ARTICLES), 0)
    is_usual = begins_sentence and place == 0 and lower[0] in lower_words
    if all(word in _PRONOUNS for word in lower):
        kind = PRONOUN
    elif is_usual or not words[place][:1].isupper() or lower[place] in _PRONOUNS:
        kind = NOUN
    else:
        kind = NAME
    has_joint = any(word in _JOINTS for word in lower)
    # More frequent mentions come first, so that a long name that was linked by mistake does not
    # represent the cluster. Next come longer mentions, then earlier ones.
    return kind, has_joint, -count, -sum(map(len, words)), start


def cluster_score(cluster: Sequence[dict]) -> float | None:
    """Returns the score of a cluster from `resolve(..., scores=True)`."""
    links = [m["link_score"] for m in cluster if m["link_score"] is not None]
    if links:
        return sum(links) / len(links)
    if len(cluster) > 1:
        return None
    return 0.5 + 0.5 * math.tanh(0.5 * cluster[0]["score"])  # The logistic function.


class DocumentInputs:
    """The part of a resolver that handles documents and texts."""

    @accepts_datasets
    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Converts documents to one batch of arrays.

        They are those of `inference.document_inputs`, and the labels `cluster_ids`.
        """
        batches, *_ = self.preprocess_rows(x, y, sample_weight, len(x), False, "evaluate")
        return keras.utils.unpack_x_y_sample_weight(batches[0])

    def preprocess_rows(self, x, y, sample_weight, batch_size, shuffle, mode: str) -> tuple:
        # Batches instead of arrays, so that long documents are cut anew in each epoch.
        check_none("documents include their `clusters`", y=y, sample_weight=sample_weight)
        is_training, seed = mode == "fit", random.randint(1, 10**9)
        shuffle = is_training and shuffle
        return self.batches(x, batch_size or 1, is_training, shuffle, seed), None, None

    def batches(
        self,
        documents: list[dict],
        batch_size: int = 1,
        is_training: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        pad: bool = False,
    ) -> Batches:
        """Converts documents to batches of arrays: see `Documents` and `Batches`."""
        rows = Documents(self, documents, is_training, seed)
        return Batches(rows, batch_size, seed, whole_epochs=True, shuffle=shuffle, pad=pad)

    def predict_clusters(
        self,
        documents: list[dict],
        batch_size: int = 8,
        max_spans_in_memory: int = 2000,
        min_link_score: float | None = None,
    ) -> list:
        """Predicts the clusters of documents.

        Args:
            documents: list of dicts, see the preprocessor's `segment`.
            batch_size, max_spans_in_memory: ints, see `resolve`. Default to `8` and `2000`.
            min_link_score: float, see `resolve`. Defaults to `None`.

        Returns:
            For each document a list of clusters, lists of mentions `[start, end]`, both included.
            They count words, or subtokens if the document is in subtokens. In words, one mention of
            a cluster can end at the word where the next one begins. `write_jsonlines` can write
            such mentions. For `write_conll`, use `keras_spanbert.data.coreference.nested_clusters`
            to leave one of them out.

        Raises:
            ValueError: see `score_document`.

        Example:
        ```python
        resolver.predict_clusters([{"sentences": [["Ann", "left"], ["She", "sang"]]}])
        ```
        """
        documents = list(documents)
        found = find_clusters(self, documents, batch_size, max_spans_in_memory, min_link_score)
        return [[[list(mention) for mention in c] for c in clusters] for clusters, _ in found]

    def evaluate_clusters(
        self,
        documents: list[dict],
        batch_size: int = 8,
        max_spans_in_memory: int = 2000,
        min_link_score: float | None = None,
    ) -> dict:
        """Computes the official scores of the clusters predicted for documents.

        A model without `singletons` is scored as on OntoNotes, which has no singletons. Gold
        clusters of one mention are then ignored.

        Args:
            documents: list of dicts with `clusters`, see the preprocessor's `segment`.
            batch_size, max_spans_in_memory: ints, see `resolve`. Default to `8` and `2000`.
            min_link_score: float, see `resolve`. Defaults to `None`.

        Returns:
            Dict in percent: `average_f1`; precision, recall and F1 of each measure of
            `keras_spanbert.metrics.coreference`, such as `muc_f1`; and
            `average_f1_without_singletons`, `muc_f1_without_singletons` and so on.
            `total` is the number of documents.

        Raises:
            ValueError: if a document has no `clusters`. See also `score_document`.

        Example:
        ```python
        documents = keras_spanbert.data.coreference.read("dev.conll")
        resolver.evaluate_clusters(documents)["average_f1"]
        ```
        """
        documents = list(documents)
        check_has_clusters(documents)
        gold = [document["clusters"] for document in documents]
        predicted = self.predict_clusters(
            documents, batch_size, max_spans_in_memory, min_link_score
        )
        without = coreference(
            *([[c for c in clusters if len(c) > 1] for clusters in x] for x in (gold, predicted))
        )
        scores = coreference(gold, predicted) if self.singletons else without
        row = {"average_f1": scores["average_f1"]}
        for measure in MEASURES:
            row.update({f"{measure}_{name}": value for name, value in scores[measure].items()})
        row["average_f1_without_singletons"] = without["average_f1"]
        for measure in MEASURES:
            row[f"{measure}_f1_without_singletons"] = without[measure]["f1"]
        return {**row, "total": len(documents)}

    @accepts_datasets
    def resolve(
        self,
        texts,
        speakers=None,
        genre=None,
        scores: bool = False,
        min_link_score: float | None = None,
        mentions=None,
        batch_size: int = 8,
        max_spans_in_memory: int = 2000,
    ) -> list:
        """Finds the clusters of mentions of texts of any length.

        A text with more than `max_spans_in_memory` kept spans (5,000 tokens, at the
        default `top_span_ratio`) is resolved in chunks. The spans of a chunk are scored
        with each other and with up to `max_spans_in_memory` earlier ones, so memory is
        limited and time is linear. Shorter texts have the scores of `score_document`.

        Args:
            texts: string, or list, tuple, array or tensor of strings. A list can also
                contain texts in words: lists of sentences, each a list of words.
            speakers: list with an item, or `None`, for each text. For a string, an item is a list
                of `(start, end, name)`, in characters. For words, it has a list for each sentence
                with a name for each word. Defaults to `None`: one speaker.
            genre: string from `genres`, or list with a genre or `None` for each text.
                Defaults to `None`, the first genre.
            scores: bool. Whether to add scores to the result. Defaults to `False`.
            min_link_score: float in [0, 1]. A mention whose `"link_score"` would be
                lower is not linked to its antecedent. This can split clusters.
                Defaults to `None`: all links count.
            mentions: list with an item, or `None`, for each text, or such an item for
                one string. An item is a list of `(start, end)`, in characters, or in
                words for a text in words. Clusters then contain only these mentions,
                which may be nested and cross, with exactly these positions. Mentions
                with the same words count once. A word is split where a mention starts or
                ends inside it. Defaults to `None`: the resolver finds the mentions.
            batch_size: int. Maximum number of texts per batch. A batch has at most
                `max_spans_in_memory` spans. Defaults to `8`.
            max_spans_in_memory: int. Defaults to `2000`.

        Returns:
            For each text `{"clusters": clusters}`, or a single dict for one string. Clusters are in
            the order of their first mentions. A cluster is a list of mentions
            `{"text", "start", "end"}`, the exact slice `text[start:end]`. If the text is in words,
            `start` and `end` count words through the text, and `"text"` has these words with spaces
            between them. The first mention is the main one: names come before other nouns, and
            those before pronouns. Next come mentions without a clause or a list, the most frequent,
            the longest, the earliest. The other mentions are in the order of the text. A mention
            without a link is in no cluster, or with `singletons` in one of its own.

            With `scores`, a mention also has a `"score"`, a float that is higher the more it looks
            like a mention; `"antecedent"`, the earlier mention that it is linked to, a dict
            `{"text", "start", "end"}`; and `"link_score"`, the probability of this antecedent among
            all others and none. Several mentions of one cluster share the probability. Both are
            `None` if the mention has no link, as the earliest of each cluster. The result also has
            `"cluster_scores"`, the mean of the link scores of each cluster. For a cluster of one it
            is the probability that this is a mention.

        Raises:
            ValueError: if the model has no preprocessor, texts, speakers, genre or mentions have
                another form, `batch_size` or `max_spans_in_memory` is not an integer of at least 1,
                `min_link_score` is not in [0, 1], or a given mention is empty, not in the text,
                without a word, or longer than `max_span_width` tokens.

        Example:
        ```python
        resolver.resolve("Ann left. She was tired.")["clusters"]
        ```
        """
        check_flags(scores=scores)
        if is_string := isinstance(texts, str):
            texts, speakers, genre, mentions = (
                None if value is None else [value] for value in (texts, speakers, genre, mentions)
            )
        texts, documents = as_documents(texts, speakers, genre, mentions, self.genres)
        found = find_clusters(
            self, documents, batch_size, max_spans_in_memory, min_link_score, has_mentions=True
        )
        result = [{"clusters": as_dicts(x, *pair, scores)} for x, pair in zip(texts, found)]
        for row in result if scores else []:
            row["cluster_scores"] = [*map(cluster_score, row["clusters"])]
        return result[0] if is_string else result

    def score_document(self, document: dict) -> dict:
        """Scores a document's spans and pairs of spans, and resolves it.

        Args:
            document: dict, see the preprocessor's `segment`.

        Returns:
            Dict of NumPy arrays, where N is the number of candidate spans, K the
            number of spans that are kept, and A the number of their possible
            antecedents:
            `candidate_starts`, `candidate_ends` int32 `[N]`, tokens of the
            segmented document, ends included;
            `candidate_mention_scores` float32 `[N]`;
            `top_span_starts`, `top_span_ends` int32 `[K]`, in order;
            `top_span_mention_scores` float32 `[K]`;
            `top_antecedents` int32 `[K, A]`, indices of spans that are kept;
            `top_antecedent_scores` float32 `[K, A + 1]`, first 0, the score of no
            antecedent, and -inf for missing antecedents;
            `clusters`, a list of lists of `(start, end)`; and the `loss`, if the
            document has `clusters`.

        Raises:
            ValueError: if the model has no preprocessor. See also `segment`.

        Example:
        ```python
        resolver.score_document({"sentences": [["Ann", "left", "."]]})["clusters"]
        ```
        """
        self.check_preprocessor()
        self.warn_if_untrained()
        tensors = self.preprocessor.tensors(document)
        inputs = document_inputs(tensors, self)
        (scores,) = predict_rows(self, [inputs])
        token_of = np.arange(len(inputs["token_places"]), dtype=np.int32)
        clusters, _ = cluster_mentions(scores, token_of, self.singletons)
        for name in ["best_antecedents", "link_scores"]:
            del scores[name]
        top_spans = scores.pop("top_spans")
        num_antecedents = min(self.max_top_antecedents, len(top_spans))
        result = {
            "candidate_starts": inputs["starts"],
            "candidate_ends": inputs["ends"],
            **scores,
            "top_antecedents": scores["top_antecedents"][:, :num_antecedents],
            "top_antecedent_scores": scores["top_antecedent_scores"][:, : 1 + num_antecedents],
            "clusters": [list(cluster) for cluster in clusters],
        }
        if "clusters" in document:
            names = "top_antecedent_scores", "top_antecedents", "top_span_mention_scores"
            labels = gold_clusters(tensors, inputs)[top_spans]
            losses = self.span_losses(*(result[n][None] for n in names), labels[None])
            result["loss"] = float(ops.convert_to_numpy(losses).sum())
        return result
