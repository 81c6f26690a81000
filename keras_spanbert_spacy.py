"""The component of spaCy's pipelines that resolves coreference.

Outside of the package, which loads a backend: spaCy imports this module with
every pipeline, whether that has the component or not.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator

from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import minibatch

NAME = "spanbert_coreference"
PREFIX = "coref_clusters"  # As spacy-experimental's component has it.
_FOLDER = "preset"


@Language.factory(
    NAME,
    assigns=["doc.spans", f"doc._.{PREFIX}"],
    requires=["doc.sents"],
    default_config={"preset": "", "genre": None},
)
def make_component(nlp: Language, name: str, preset: str, genre: str | None):
    """The component's factory: `nlp.add_pipe("spanbert_coreference", config={...})`."""
    return SpanBertCoreference(name, preset, genre)


class SpanBertCoreference(Pipe):
    """Resolves coreference in documents of spaCy's, by their own words and sentences.

    Each cluster is a group of spans in `doc.spans`, `"coref_clusters_1"`,
    `"coref_clusters_2"`, ..., its main mention first; `doc._.coref_clusters`
    lists them, as lists of spans. The model is loaded with the first document;
    `nlp.to_disk` writes it into the pipeline's folder.

    Args:
        name: string. The component's name in its pipeline.
        preset: string. A preset or checkpoint for
            `keras_spanbert.SpanBertCoreferenceResolver.from_preset`.
        genre: string. The genre of all documents, see its `resolve`. Defaults
            to `None`.

    Raises:
        ValueError: for a document whose sentences are not known, or without
            `preset`.

    Example:
    ```python
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("spanbert_coreference", config={"preset": "saved_models/coreference"})
    nlp("Ann sold her book.")._.coref_clusters  # [[Ann, her]]
    ```
    """

    def __init__(self, name: str, preset: str, genre: str | None = None):
        self.name = name
        self.preset = preset
        self.genre = genre
        self._resolver = None
        Doc.set_extension(PREFIX, getter=_clusters, force=True)

    @property
    def resolver(self):
        """The `SpanBertCoreferenceResolver`."""
        if self._resolver is None:
            if not self.preset:
                raise ValueError(
                    f"{self.name} must have a preset: nlp.add_pipe({NAME!r}, config="
                    '{"preset": "a/folder"}). Received: preset=\'\''
                )
            import keras_spanbert

            self._resolver = keras_spanbert.SpanBertCoreferenceResolver.from_preset(self.preset)
        return self._resolver

    def __call__(self, doc: Doc) -> Doc:
        """Sets a document's clusters."""
        self._set_clusters([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Sets the clusters of a stream of documents, `batch_size` at a time."""
        for docs in minibatch(stream, size=batch_size):
            try:
                self._set_clusters(docs)
                yield from docs
            except Exception as error:
                self.get_error_handler()(self.name, self, docs, error)

    def to_disk(self, path: str | pathlib.Path, *, exclude: Iterable[str] = ()) -> None:
        """Writes the model's preset into the folder `path`."""
        self.resolver.save_to_preset(os.path.join(path, _FOLDER))

    def from_disk(
        self, path: str | pathlib.Path, *, exclude: Iterable[str] = ()
    ) -> "SpanBertCoreference":
        """Takes the preset that is in the folder `path`."""
        self.preset = os.path.join(path, _FOLDER)
        self._resolver = None
        return self

    def _set_clusters(self, docs):
        resolved = [(doc, *self._words(doc)) for doc in docs]
        resolved = [each for each in resolved if each[2]]
        texts = [sentences for _, sentences, _ in resolved]
        found = self.resolver.resolve(texts, genre=self.genre) if texts else []
        for doc in docs:
            for key in _keys(doc):
                del doc.spans[key]
        for (doc, _, tokens), result in zip(resolved, found):
            for number, cluster in enumerate(result["clusters"], 1):
                # Of a text of words, places are those of words.
                spans = [doc[tokens[m["start"]] : tokens[m["end"] - 1] + 1] for m in cluster]
                key = f"{PREFIX}_{number}"
                doc.spans[key] = SpanGroup(doc, name=key, spans=spans)

    def _words(self, doc):
        """A document's sentences of words, and each word's token: white space is no word."""
        tokens = [token.i for token in doc if not token.is_space]
        if not tokens:
            return [], []
        if not doc.has_annotation("SENT_START"):
            raise ValueError(
                f"{self.name} must get documents with sentences: add what ends them before it, as "
                f'nlp.add_pipe("sentencizer", before="{self.name}"). Received: {doc.text!r:.60}'
            )
        sentences = [[token.text for token in s if not token.is_space] for s in doc.sents]
        return [sentence for sentence in sentences if sentence], tokens


def _keys(doc):
    start = f"{PREFIX}_"
    numbers = (key.removeprefix(start) for key in doc.spans if key.startswith(start))
    return [start + n for n in sorted((n for n in numbers if n.isdecimal()), key=int)]


def _clusters(doc: Doc) -> list[list[Span]]:
    return [list(doc.spans[key]) for key in _keys(doc)]
