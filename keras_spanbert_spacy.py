"""The spaCy component that resolves coreference.

This module is not part of the package, because importing the package loads a backend. spaCy
imports this module with every pipeline, even if the pipeline does not have the component.
"""

import collections
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator

from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import minibatch

NAME = "spanbert_coreference"
PREFIX = "coref_clusters"  # The name that spacy-experimental uses.
_FOLDER = "preset"


@Language.factory(
    NAME,
    assigns=["doc.spans", f"doc._.{PREFIX}"],
    requires=["doc.sents"],
    default_config={"preset": "", "genre": None, "dtype": None},
)
def make_component(nlp: Language, name: str, preset: str, genre: str | None, dtype: str | None):
    """Creates the component for `nlp.add_pipe("spanbert_coreference", config={...})`."""
    path = os.path.abspath(os.path.expanduser(preset))
    exists = bool(preset) and os.path.exists(path)
    # The mark is saved with a pipeline, which has its preset in its own folder: see `from_disk`.
    if preset and not exists and "://" not in preset and NAME not in nlp.meta:
        raise ValueError(
            f"The preset of {name} must be a folder or file that exists, or a handle such as "
            f"hf://user/model. Received: {preset!r}, which is not in {os.getcwd()}"
        )
    nlp.meta[NAME] = True
    return SpanBertCoreference(name, path if exists else preset, genre, dtype)


class SpanBertCoreference(Pipe):
    """Resolves coreference in spaCy documents, with their own words and sentences.

    Each cluster is a group of spans in `doc.spans`: `"coref_clusters_1"`, `"coref_clusters_2"`, and
    so on. The main mention comes first. `doc._.coref_clusters` returns the clusters as lists of
    spans. The first document loads the model. `nlp.to_disk` saves the model with the pipeline.

    `Doc.from_docs` joins groups of the same name, and merging or splitting tokens makes
    the groups of `doc.spans` wrong. `doc._.coref_clusters` is right in both cases: it
    finds mentions by their characters, and documents by the ids of spans, the positions
    of their first characters. After tokens were merged, spaCy may refuse `Doc.copy` and
    `Doc.from_docs`. `Doc.to_json` has no ids, so use `DocBin` for joined documents.

    With `n_process` in `nlp.pipe`, each process loads the model. Forked processes,
    the default on Linux, cannot do this if their parent process has already used a model.

    Args:
        name: string. The name of the component in its pipeline.
        preset: string. A preset or checkpoint for
            `keras_spanbert.SpanBertCoreferenceResolver.from_preset`.
        genre: string. The genre of all documents. See the resolver's `resolve`. Defaults to `None`.
        dtype: string. The dtype policy of the model. With `"float32"`, a quantized preset is
            converted, which is faster on CPUs. Defaults to `None`: see `from_preset`.

    Raises:
        ValueError: if a document has no sentence boundaries, `preset` is empty or does
            not exist, or a forked process cannot load the model.

    Example:
    ```python
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("spanbert_coreference", config={"preset": "saved_models/coreference"})
    nlp("Ann sold her book.")._.coref_clusters  # [[Ann, her]]
    ```
    """

    def __init__(self, name: str, preset: str, genre: str | None = None, dtype: str | None = None):
        self.name = name
        self.preset = preset
        self.genre = genre
        self.dtype = dtype
        self._resolver = None
        Doc.set_extension(PREFIX, getter=_clusters, force=True)

    @property
    def resolver(self):
        """The `SpanBertCoreferenceResolver`, which is loaded when it is first used."""
        models = sys.modules.get("keras_spanbert.models.keras_model")
        process = models and models.KerasModel.first_process
        if process not in (None, os.getpid()):
            raise ValueError(
                f"{self.name} cannot run in a process that was forked after a model was loaded: "
                "the process would wait forever. Call nlp.pipe with n_process=1, or with "
                "n_process=2 or more before the first document, or call "
                f'multiprocessing.set_start_method("spawn"). Received: process {os.getpid()}, '
                f"forked from process {process}"
            )
        if self._resolver is None:
            if not self.preset:
                raise ValueError(
                    f"{self.name} must have a preset: nlp.add_pipe({NAME!r}, config="
                    '{"preset": "a/folder"}). Received: preset=\'\''
                )
            import keras_spanbert

            self._resolver = keras_spanbert.SpanBertCoreferenceResolver.from_preset(
                self.preset, dtype=self.dtype
            )
        return self._resolver

    def __call__(self, doc: Doc) -> Doc:
        """Sets the clusters of a document."""
        self._set_clusters([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Sets the clusters of a stream of documents, `batch_size` documents at a time."""
        for docs in minibatch(stream, size=batch_size):
            try:
                self._set_clusters(docs)
                yield from docs
            except Exception as error:
                self.get_error_handler()(self.name, self, docs, error)

    def to_disk(self, path: str | pathlib.Path, *, exclude: Iterable[str] = ()) -> None:
        """Saves the model as a preset in the folder `path`. After an error, old files remain."""
        self.resolver.save_to_preset(os.path.join(path, _FOLDER))

    def from_disk(
        self, path: str | pathlib.Path, *, exclude: Iterable[str] = ()
    ) -> "SpanBertCoreference":
        """Uses the preset in the folder `path`. The next document loads it."""
        self.preset = os.path.abspath(os.path.join(path, _FOLDER))
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
                # The positions are in words, because the texts are lists of words.
                places = [(tokens[m["start"]], tokens[m["end"] - 1] + 1) for m in cluster]
                spans = [Span(doc, i, j, span_id=str(doc[i].idx)) for i, j in places]
                key = f"{PREFIX}_{number}"
                doc.spans[key] = SpanGroup(doc, name=key, spans=spans)

    def _words(self, doc):
        """Returns the words of each sentence, and the token of each word. Skips white space."""
        tokens = [token.i for token in doc if not token.is_space]
        if not tokens:
            return [], []
        if not doc.has_annotation("SENT_START"):
            raise ValueError(
                f"{self.name} needs documents with sentence boundaries. Add a component that sets "
                f'them before it: nlp.add_pipe("sentencizer", before="{self.name}"). Received: '
                f"{doc.text!r:.60}"
            )
        sentences = [[token.text for token in s if not token.is_space] for s in doc.sents]
        return [sentence for sentence in sentences if sentence], tokens


def _keys(doc):
    start = f"{PREFIX}_"
    numbers = (key.removeprefix(start) for key in doc.spans if key.startswith(start))
    return [start + n for n in sorted((n for n in numbers if n.isdecimal()), key=int)]


def _clusters(doc: Doc) -> list[list[Span]]:
    clusters = collections.defaultdict(list)
    for key in _keys(doc):
        for span in doc.spans[key]:
            start = span.id_ if span.id in doc.vocab.strings else ""
            document = span.start_char - int(start) if start.isdecimal() else 0
            mention = doc.char_span(span.start_char, span.end_char, alignment_mode="expand")
            clusters[document, key].append(mention)
    return [clusters[place] for place in sorted(clusters, key=lambda place: place[0])]
