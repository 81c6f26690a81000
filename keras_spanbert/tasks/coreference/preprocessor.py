"""From documents of words or subtokens to arrays for `SpanBertCoreferenceResolver`."""

import keras
import numpy as np

from keras_spanbert.data.coreference_documents import check_document, in_subtokens
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.tasks.coreference.segments import document_of_words
from keras_spanbert.tasks.coreference.tensors import tensorize

GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")
MODEL_TYPES = ("independent", "overlap")
# Where a checkpoint's settings have the resolver's arguments: some of their names are BERT's too.
SETTINGS = "coreference"


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertCoreferenceResolverPreprocessor(SpanBertPreprocessor):
    """Cuts documents into segments of whole sentences, and makes arrays of them.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Longest segment, with `[CLS]` and `[SEP]`; the
            resolver's `max_segment_len`. Defaults to `384`.
        model_type: "independent", segments that know nothing of one another, or
            "overlap", where each token is seen in two of them. Defaults to
            `"independent"`.
        max_num_speakers: int. How many speakers of a document are told apart,
            two of them for the unknown and for separators. Defaults to `20`.
        genres: strings, what the keys of documents may begin with. Defaults to
            those of OntoNotes.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where `model_type` is unknown, or a segment has no room for
            a token.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertCoreferenceResolverPreprocessor(tokenizer)
    document = preprocessor.segment(
        {"sentences": [["Ann", "left", "."], ["She", "was", "tired", "."]]}
    )
    ```

    Reference:
        [Joshi et al. 2019](https://arxiv.org/abs/1908.09091); segments and
        arrays are those of the released scripts.
    """

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 384,
        model_type: str = "independent",
        max_num_speakers: int = 20,
        genres=GENRES,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if model_type not in MODEL_TYPES:
            raise ValueError(
                f"`model_type` must be one of {MODEL_TYPES}. Received: model_type={model_type!r}"
            )
        for name, value, least in [
            ("sequence_length", sequence_length, 4),
            ("max_num_speakers", max_num_speakers, 2),
        ]:
            if int(value) != value or value < least:
                raise ValueError(f"`{name}` must be {least} or more. Received: {name}={value}")
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.model_type = model_type
        self.max_num_speakers = int(max_num_speakers)
        self.genres = tuple(genres)
        self._id_of = None
        self.built = True

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        given = settings.get(SETTINGS, {})
        names = [name for name in ["model_type", "max_num_speakers", "genres"] if name in given]
        length = min(384, settings["max_position_embeddings"])
        return {
            "sequence_length": given.get("max_segment_len", length),
            **{name: given[name] for name in names},
        }

    def call(self, x, y=None, sample_weight=None):
        """The arrays of one document: see `tensors`."""
        return self.tensors(x)

    def segment(self, document: dict) -> dict:
        """Cuts a document into subtokens and segments, as the released scripts store it.

        Args:
            document: dict of
                `sentences`: list of lists of words;
                `speakers`: lists of as many names. Defaults to one for all;
                `doc_key`: string that begins with the genre. Defaults to `""`;
                `clusters`: lists of mentions `(first word, last word)`, words
                counted through the document. Those that share a mention
                become one. Defaults to none.
                What has a `sentence_map` is in subtokens and segments already;
                mentions count these, and nothing is cut.

        Returns:
            Dict of `doc_key`; `sentences`, the segments' subtokens; `speakers`,
            as many names; `clusters`, by subtokens; `sentence_map` and
            `subtoken_map`, the sentence and the word of each subtoken.

        Raises:
            ValueError: where the document is not of this form: see
                `keras_spanbert.data.coreference.check_document`.
        """
        if isinstance(document, dict):
            document = {"doc_key": "", **document}
        check_document(document)
        sentences = document["sentences"]
        document.setdefault("speakers", [["-"] * len(sentence) for sentence in sentences])
        clusters = _merged(document.get("clusters", []))
        if in_subtokens(document):
            self._check_separators(document)
            return {**document, "clusters": clusters}
        if "subtoken_map" in document:
            raise ValueError(
                "A document in subtokens must have a `sentence_map`. Received: a `subtoken_map` "
                f"alone, in {document['doc_key']!r}"
            )
        segmented = document_of_words(
            self._pieces([word for sentence in sentences for word in sentence]),
            [len(sentence) for sentence in sentences],
            [name for row in document["speakers"] for name in row],
            self.sequence_length,
            self.model_type == "independent",
            self.tokenizer.cls_token,
            self.tokenizer.sep_token,
        )
        spans = segmented.pop("word_spans")
        clusters = [
            [[spans[start][0], spans[end][1]] for start, end in cluster] for cluster in clusters
        ]
        return {"doc_key": document["doc_key"], **segmented, "clusters": clusters}

    def _check_separators(self, document):
        wanted = self.model_type == "independent"
        ends = self.tokenizer.cls_token, self.tokenizer.sep_token
        for segment in document["sentences"]:
            has_separators = (*segment[:1], *segment[-1:]) == ends
            if has_separators != wanted:
                raise ValueError(
                    f"Segments for model_type={self.model_type!r} must be stored "
                    f"{'with' if wanted else 'without'} {ends[0]} and {ends[1]}. Received: "
                    f"{segment!r:.80} in {document['doc_key']!r}"
                )

    def tensors(self, document: dict) -> dict:
        """The arrays of the released scripts for a document.

        Args:
            document: dict, see `segment`, in words or subtokens.

        Returns:
            Dict of int32 arrays: see `tensorize`.
        """
        document = self.segment(document)
        if self._id_of is None:
            vocabulary = self.tokenizer.get_vocabulary()
            self._id_of = {token: number for number, token in enumerate(vocabulary)}
        unknown = self._id_of[self.tokenizer.oov_token]
        separators = 0 if self.model_type == "independent" else 2
        token_ids = []
        for segment in document["sentences"]:
            if len(segment) + separators > self.sequence_length:
                raise ValueError(
                    f"A segment must have at most the preprocessor's {self.sequence_length} "
                    f"tokens. Received: {len(segment) + separators}"
                )
            token_ids.append([self._id_of.get(token, unknown) for token in segment])
        return tensorize(
            document,
            token_ids,
            model_type=self.model_type,
            max_segment_len=self.sequence_length,
            max_num_speakers=self.max_num_speakers,
            genres=self.genres,
            cls_token_id=self.tokenizer.cls_token_id,
            sep_token_id=self.tokenizer.sep_token_id,
        )

    def _pieces(self, words):
        """Each word's subtokens."""
        # OntoNotes writes two sentence ends with a slash before them.
        words = [word[1:] if word in ("/.", "/?") else word for word in words]
        tokenizer = self.tokenizer
        pieces = [[tokenizer.id_to_token(int(i)) for i in ids] for ids in _ids(tokenizer, words)]
        # A word of control characters alone keeps its place.
        return [tokens or [tokenizer.oov_token] for tokens in pieces]

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "sequence_length": self.sequence_length,
                "model_type": self.model_type,
                "max_num_speakers": self.max_num_speakers,
                "genres": list(self.genres),
            }
        )
        return config


def _ids(tokenizer, words) -> list[np.ndarray]:
    """Each word's ids; equal words are tokenised once."""
    unique = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = tokenizer.tokenize_batch(list(unique))
    return [ids[unique[word]] for word in words]


def _merged(clusters) -> list[list[tuple[int, int]]]:
    """Clusters that share a mention as one, each mention once."""
    merged = []
    for cluster in clusters:
        mentions = dict.fromkeys(map(tuple, cluster))
        apart = []
        for other in merged:
            if other.keys().isdisjoint(mentions):
                apart.append(other)
            else:
                mentions = other | mentions
        merged = [*apart, mentions]
    return [list(mentions) for mentions in merged]
