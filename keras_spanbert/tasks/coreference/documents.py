"""Documents and texts into a resolver, and clusters out of it."""

import random

from keras import ops

from keras_spanbert.tasks.coreference.batches import DocumentBatches
from keras_spanbert.tasks.coreference.document_scores import document_scores
from keras_spanbert.tasks.coreference.evaluation import evaluate_clusters, predict_clusters
from keras_spanbert.tasks.coreference.replacing import replace
from keras_spanbert.tasks.coreference.resolving import resolve


class DocumentInputs:
    """The part of a resolver that takes documents and texts, where others take strings."""

    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Documents as one batch of arrays: see the class."""
        batches = self.batches(x, batch_size=len(x))
        return (*batches[0], None, None)[:3]

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        # Batches and not arrays, so that long documents are cut anew in each epoch.
        if y is not None or sample_weight is not None:
            raise ValueError(
                "Documents hold their `clusters`, so that `y` and `sample_weight` must be None. "
                f"Received: y of type {type(y).__name__}, sample_weight of type "
                f"{type(sample_weight).__name__}"
            )
        max_segments = self.max_training_sentences if is_training else None
        is_shuffled = is_training and shuffle is not False
        seed = random.randint(1, 10**9)
        return self.batches(x, batch_size or 1, max_segments, is_shuffled, seed), None, None

    def batches(
        self,
        documents: list[dict],
        batch_size: int = 1,
        max_segments: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> DocumentBatches:
        """Documents as batches of arrays: see `DocumentBatches`.

        Args:
            documents: list of dicts, see the preprocessor's `segment`.
            batch_size: int. Documents at once. Defaults to `1`.
            max_segments: int. Most segments of a document. Defaults to `None`.
            shuffle: bool. Whether they come in another order in each epoch.
                Defaults to `False`.
            seed: int. Defaults to `0`.
        """
        self.check_preprocessor()
        tensors = [self.preprocessor.tensors(document) for document in documents]
        return DocumentBatches(
            tensors,
            self.input_settings(),
            batch_size,
            max_segments,
            all("clusters" in document for document in documents),
            shuffle,
            seed,
        )

    def predict_clusters(
        self, documents: list[dict], batch_size: int = 8, max_spans: int = 2000
    ) -> list:
        """The clusters of documents.

        Args:
            documents: list of dicts, see the preprocessor's `segment`.
            batch_size, max_spans: ints, see `resolve`. Default to `8`, `2000`.

        Returns:
            For each document a list of clusters, lists of mentions
            `[start, end]`, ends included: of words, or of subtokens where the
            document is in these.

        Raises:
            ValueError: see `score_document`.

        Example:
        ```python
        resolver.predict_clusters([{"sentences": [["Ann", "left"], ["She", "sang"]]}])
        ```
        """
        return predict_clusters(self, documents, batch_size, max_spans)

    def evaluate_clusters(
        self, documents: list[dict], batch_size: int = 8, max_spans: int = 2000
    ) -> dict:
        """Scores the clusters that are found in documents, by the official measures.

        A model without `singletons` is scored as on OntoNotes, which has none:
        gold clusters of one mention do not count.

        Args:
            documents: list of dicts with `clusters`, see the preprocessor's
                `segment`.
            batch_size, max_spans: ints, see `resolve`. Default to `8`, `2000`.

        Returns:
            Dict of `average_f1`, of precision, recall and F1 of each measure of
            `keras_spanbert.metrics.coreference`, as `muc_f1` and so on, and of
            `average_f1_without_singletons`, `muc_f1_without_singletons` and so
            on, all in percent; and of `total`, the number of documents.

        Raises:
            ValueError: where a document has no `clusters`, or see
                `score_document`.

        Example:
        ```python
        documents = keras_spanbert.data.coreference.read("dev.conll")
        resolver.evaluate_clusters(documents)["average_f1"]
        ```
        """
        return evaluate_clusters(self, documents, batch_size, max_spans)

    def resolve(
        self,
        texts,
        speakers=None,
        genre=None,
        batch_size: int = 8,
        max_spans: int = 2000,
        scores: bool = False,
    ) -> list:
        """Finds the clusters of mentions of texts of any length.

        A text of which more than `max_spans` spans are kept (of 5,000 tokens, at
        the default `top_span_ratio`) is resolved in parts: its spans are scored
        with those of the part and with up to `max_spans` spans of earlier parts.
        Memory is that of a part then, and time is linear. Scores of shorter ones
        are those of `score_document`.

        Args:
            texts: string, or list, tuple, array or tensor of strings. In a list
                each may also be in words: a list of sentences, each a list of
                words. Strings are split into these by TensorFlow Text.
            speakers: list with an item, or `None`, for each text: of a string a
                list of `(start, end, name)`, in characters, of words a list of
                names for each sentence, one for each word. Defaults to `None`,
                one for all.
            genre: string of `genres`, or list with one, or `None`, for each text.
                Defaults to `None`, the first one.
            batch_size: int. Texts at once, which together have no more than
                `max_spans` spans. Defaults to `8`.
            max_spans: int. Defaults to `2000`.
            scores: bool. Whether mentions have a `"score"`, float, of how much
                they look like one. Defaults to `False`.

        Returns:
            For each text `{"clusters": clusters}`, in the order of their first
            mentions. A cluster is a list of mentions `{"text", "start", "end"}`,
            the exact slice `text[start:end]`; of a text in words, its words
            `start` to `end` with spaces between them, where words count through
            the text. The first mention is the main one: a name before another
            noun, that before a pronoun; then one without a clause or a list, the
            most frequent, the longest, the earliest. The others come in the order of the text. Of
            one string it is the dict alone.

        Raises:
            ValueError: where the model has no preprocessor, texts, speakers or
                genre are none of these, or `batch_size` or `max_spans` is no
                integer of at least 1.
            ImportError: where TensorFlow Text is not installed, for strings.

        Example:
        ```python
        resolver.resolve("Ann left. She was tired.")["clusters"]
        ```
        """
        if isinstance(texts, str):
            each = [None if value is None else [value] for value in (speakers, genre)]
            return self.resolve([texts], *each, batch_size, max_spans, scores)[0]
        settings = self.input_settings()
        return resolve(self, settings, texts, speakers, genre, batch_size, max_spans, scores)

    def replace(self, text: str, **kwargs) -> str:
        """The text with each mention replaced by its cluster's main mention.

        Of nested mentions the outermost is replaced. "His book" becomes "Bob's
        book": for all rules see "Replacing mentions" in docs/coreference.md.

        Args:
            text: string.
            **kwargs: `speakers`, `genre` and `max_spans`, see `resolve`.

        Returns:
            string.

        Raises:
            ValueError: where `text` is no string, or see `resolve`.

        Example:
        ```python
        resolver.replace("Ann left. She was tired.")  # "Ann left. Ann was tired."
        ```
        """
        if not isinstance(text, str):
            raise ValueError(f"`text` must be a string. Received: {text!r:.80}")
        return replace(text, self.resolve(text, **kwargs)["clusters"])

    def score_document(self, document: dict) -> dict:
        """Scores a document's spans and pairs of them, and resolves it.

        Args:
            document: dict, see the preprocessor's `segment`.

        Returns:
            Dict of NumPy arrays, where N is the number of candidate spans, K
            that of the spans that are kept, and A that of their possible
            antecedents:
            `candidate_starts`, `candidate_ends` int32 `[N]`, tokens of the
            segmented document, ends included;
            `candidate_mention_scores` float32 `[N]`;
            `top_span_starts`, `top_span_ends` int32 `[K]`, in order;
            `top_span_mention_scores` float32 `[K]`;
            `top_antecedents` int32 `[K, A]`, indices of spans that are kept;
            `top_antecedent_scores` float32 `[K, A + 1]`, that of no antecedent,
            0, first, and -inf where there is none;
            `clusters`, a list of lists of `(start, end)`; and, where the
            document has `clusters`, the `loss`.

        Raises:
            ValueError: where the model has no preprocessor, or see `segment`.

        Example:
        ```python
        resolver.score_document({"sentences": [["Ann", "left", "."]]})["clusters"]
        ```
        """
        self.check_preprocessor()
        self.warn_if_untrained()
        result, labels = document_scores(self, self.input_settings(), document)
        if "clusters" in document:
            names = "top_antecedent_scores", "top_antecedents", "top_span_mention_scores"
            arrays = [*(result[name] for name in names), labels]
            losses = self.span_losses(*map(ops.convert_to_tensor, arrays))
            result["loss"] = float(ops.convert_to_numpy(losses).sum())
        return result
