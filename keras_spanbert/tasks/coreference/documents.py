"""Passes documents and texts to a resolver, and returns their clusters."""

import random

import numpy as np
from keras import ops

from keras_spanbert.checks import accepts_datasets, check_flags
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.coreference_documents import check_has_clusters
from keras_spanbert.metrics.coreference import MEASURES, coreference
from keras_spanbert.tasks.coreference.batches import Documents, document_inputs, gold_clusters
from keras_spanbert.tasks.coreference.decoding import cluster_mentions, extract_spans
from keras_spanbert.tasks.coreference.inference import run
from keras_spanbert.tasks.coreference.mentions import cluster_score
from keras_spanbert.tasks.coreference.replacing import replace
from keras_spanbert.tasks.coreference.resolving import as_dicts, as_documents, find_clusters


class DocumentInputs:
    """The part of a resolver that handles documents and texts."""

    @accepts_datasets
    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Converts documents to one batch of arrays: see the class."""
        return (*self.batches(x, batch_size=len(x))[0], None, None)[:3]

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        # Batches instead of arrays, so that long documents are cut anew in each epoch.
        if y is not None or sample_weight is not None:
            raise ValueError(
                "`y` and `sample_weight` must be None because documents include their `clusters`. "
                f"Received: y of type {type(y).__name__}, sample_weight of type "
                f"{type(sample_weight).__name__}"
            )
        found = self.batches(
            x,
            batch_size or 1,
            max_segments=self.max_training_sentences if is_training else None,
            shuffle=is_training and shuffle is not False,
            seed=random.randint(1, 10**9),
        )
        return found, None, None

    def batches(
        self,
        documents: list[dict],
        batch_size: int = 1,
        max_segments: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        pad: bool = False,
    ) -> Batches:
        """Converts documents to batches of arrays: see `Documents` and `Batches`."""
        rows = Documents(self, documents, max_segments, seed)
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
            batch_size, max_spans_in_memory: ints, see `resolve`. Default to `8`, `2000`.
            min_link_score: float, see `resolve`. Defaults to `None`.

        Returns:
            For each document a list of clusters, lists of mentions `[start, end]`,
            both included. They count words, or subtokens if the document is in
            subtokens. In words, one mention of a cluster can end at the word where
            the next one begins. `write_jsonlines` can write such mentions. For
            `write_conll`, use `keras_spanbert.data.coreference.nested_clusters` to
            leave one of them out.

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
            documents: list of dicts with `clusters`, see the preprocessor's
                `segment`.
            batch_size, max_spans_in_memory: ints, see `resolve`. Default to `8`, `2000`.
            min_link_score: float, see `resolve`. Defaults to `None`.

        Returns:
            Dict in percent: `average_f1`; precision, recall and F1 of each measure of
            `keras_spanbert.metrics.coreference`, such as `muc_f1`; and
            `average_f1_without_singletons`, `muc_f1_without_singletons` and so on.
            `total` is the number of documents.

        Raises:
            ValueError: if a document has no `clusters`. See also
                `score_document`.

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
        without = coreference(*map(_without_singletons, (gold, predicted)))
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
        batch_size: int = 8,
        max_spans_in_memory: int = 2000,
        scores: bool = False,
        min_link_score: float | None = None,
        mentions=None,
    ) -> list:
        """Finds the clusters of mentions of texts of any length.

        A text with more than `max_spans_in_memory` kept spans (5,000 tokens, at the
        default `top_span_ratio`) is resolved in chunks. The spans of a chunk are scored
        with each other and with up to `max_spans_in_memory` spans of earlier chunks,
        so memory is limited to that of a chunk and time is linear. Shorter texts have
        the same scores as in `score_document`.

        Args:
            texts: string, or list, tuple, array or tensor of strings. A list can also
                contain texts in words: lists of sentences, each a list of words.
            speakers: list with an item, or `None`, for each text. For a string, an
                item is a list of `(start, end, name)`, in characters. For words, it
                has a list for each sentence with a name for each word. Defaults to
                `None`: one speaker.
            genre: string from `genres`, or list with a genre or `None` for each text.
                Defaults to `None`, the first genre.
            batch_size: int. Maximum number of texts per batch. A batch has at most
                `max_spans_in_memory` spans. Defaults to `8`.
            max_spans_in_memory: int. Defaults to `2000`.
            scores: bool. Whether to add scores to the result. Defaults to `False`.
            min_link_score: float in [0, 1]. A mention whose `"link_score"` would be
                lower is not linked to its antecedent. This can split clusters.
                Defaults to `None`: all links count.
            mentions: list with an item, or `None`, for each text, or such an item for
                one string. An item is a list of `(start, end)`, in characters, or in
                words for a text in words. Clusters then contain only these mentions,
                with exactly these positions. Mentions may be nested and cross. Mentions
                with the same words count once. A word is split where a mention starts or
                ends inside it. Defaults to `None`: the resolver finds the mentions.

        Returns:
            For each text `{"clusters": clusters}`, or a single dict for one string.
            Clusters are in the order of their first mentions. A cluster is a list of
            mentions `{"text", "start", "end"}`, the exact slice `text[start:end]`. If
            the text is in words, `start` and `end` count words through the text, and
            `"text"` has these words with spaces between them. The first mention is
            the main one: names come before other nouns, and those before pronouns.
            Next come mentions without a clause or a list, the most frequent, the
            longest, the earliest. The other mentions are in the order of the text. A
            mention without a link is in no cluster, or with `singletons` in one of its
            own.

            With `scores`, a mention also has a `"score"`, a float that is higher the
            more it looks like a mention; `"antecedent"`, the earlier mention that it is
            linked to, a dict `{"text", "start", "end"}`; and `"link_score"`, the
            probability of this antecedent among all others and none. Several mentions of
            one cluster share the probability. Both are `None` if the mention has no
            link, as the earliest of each cluster. The result also has
            `"cluster_scores"`, the mean of the link scores of each cluster. For a
            cluster of one it is the probability that this is a mention.

        Raises:
            ValueError: if the model has no preprocessor, texts, speakers, genre or
                mentions have another form, `batch_size` or `max_spans_in_memory` is not
                an integer of at least 1, `min_link_score` is not in [0, 1], or a given
                mention is empty, not in the text, without a word, or longer than
                `max_span_width` tokens.

        Example:
        ```python
        resolver.resolve("Ann left. She was tired.")["clusters"]
        ```
        """
        check_flags(scores=scores)
        if isinstance(texts, str):
            speakers, genre, mentions = (
                None if value is None else [value] for value in (speakers, genre, mentions)
            )
            sizes = batch_size, max_spans_in_memory
            return self.resolve([texts], speakers, genre, *sizes, scores, min_link_score, mentions)[
                0
            ]
        texts, documents = as_documents(texts, speakers, genre, mentions, self.genres)
        found = find_clusters(
            self, documents, batch_size, max_spans_in_memory, min_link_score, has_mentions=True
        )
        result = [{"clusters": as_dicts(x, *pair, scores)} for x, pair in zip(texts, found)]
        for row in result if scores else []:
            row["cluster_scores"] = [*map(cluster_score, row["clusters"])]
        return result

    def replace(self, text: str, **kwargs) -> str:
        """Replaces each mention in a text with the main mention of its cluster.

        If mentions are nested, the outermost is replaced. "His book" becomes "Bob's
        book". `keras_spanbert.tasks.coreference.replacing.replace` lists all rules.

        Args:
            text: string.
            **kwargs: `speakers`, `genre`, `max_spans_in_memory`, `min_link_score` and
                `mentions`, see `resolve`.

        Returns:
            string.

        Raises:
            ValueError: if `text` is not a string. See also `resolve`.

        Example:
        ```python
        resolver.replace("Ann left. She was tired.")  # "Ann left. Ann was tired."
        ```
        """
        if not isinstance(text, str):
            raise ValueError(f"`text` must be a string. Received: {text!r:.80}")
        return replace(text, self.resolve(text, **kwargs)["clusters"])

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
        (scores,) = run(self, [inputs])
        token_of = np.arange(len(inputs["token_places"]), dtype=np.int32)
        clusters = cluster_mentions(extract_spans(scores), token_of, self.singletons)
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
            losses = self.span_losses(*(result[n] for n in names), labels)
            result["loss"] = float(ops.convert_to_numpy(losses).sum())
        return result


def _without_singletons(documents):
    return [[cluster for cluster in clusters if len(cluster) > 1] for clusters in documents]
