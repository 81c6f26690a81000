"""The spaCy component."""

import pathlib
import re
import shutil

import keras
import pytest
import tiny_resolver
from processes import ROOT, run_python

import keras_spanbert as ks

spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
from spacy.tokens import Doc  # noqa: E402

import keras_spanbert_spacy  # noqa: E402, F401, which an installed package registers by itself

TEXT = "Ann sold \n\n her book.  Bob didn't read it. She came."


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spacy") / "resolver"
    tiny_resolver.build().save_to_preset(folder)
    return str(folder)


def clusters_of(sentences):
    """Returns mentions of the same person or thing, in words. One mention contains another."""
    text = " ".join(word for sentence in sentences for word in sentence)
    clusters = []
    for words in ["ann|she|her", "bob|he|him|his", "her book|it"]:
        found = re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE)
        places = [(text[: m.start()], text[: m.end()]) for m in found]
        clusters.append([{"start": len(i.split()), "end": len(j.split())} for i, j in places])
    return [cluster for cluster in clusters if cluster]


@pytest.fixture
def asked(monkeypatch):
    """Calls of the resolver, which returns fixed clusters."""
    calls = []

    def resolve(self, texts, genre=None):
        calls.append((texts, genre))
        return [{"clusters": clusters_of(sentences)} for sentences in texts]

    monkeypatch.setattr(ks.SpanBertCoreferenceResolver, "resolve", resolve, raising=False)
    return calls


@pytest.fixture
def nlp(preset, asked):
    return pipeline(preset=preset)


def pipeline(**config):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("spanbert_coreference", config=config)
    return nlp


def texts_of(doc):
    return [[span.text for span in cluster] for cluster in doc._.coref_clusters]


CLUSTERS = [["Ann", "her", "She"], ["Bob"], ["her book", "it"]]


def test_clusters_are_spans_of_the_doc(nlp, preset, asked):
    doc = nlp(TEXT)
    sentences = ["Ann sold her book .", "Bob did n't read it .", "She came ."]
    words = [sentence.split() for sentence in sentences]
    pipeline(preset=preset, genre="nw")(TEXT)
    assert asked == [([words], None), ([words], "nw")]
    assert texts_of(doc) == CLUSTERS
    assert list(doc.spans) == ["coref_clusters_1", "coref_clusters_2", "coref_clusters_3"]
    assert [span.text for span in doc.spans["coref_clusters_3"]] == ["her book", "it"]


def test_only_cluster_spans_are_replaced(nlp):
    doc = nlp(TEXT)
    others = {"other", "coref_clusters_x", "1", "17"}
    for key in [*others, "coref_clusters_17"]:
        doc.spans[key] = [doc[0:1]]
    assert texts_of(nlp.get_pipe("spanbert_coreference")(doc)) == CLUSTERS
    assert set(doc.spans) == others | {f"coref_clusters_{n}" for n in (1, 2, 3)}


def test_clusters_are_in_the_order_of_their_numbers(nlp):
    doc = spacy.blank("en")(" ".join("abcdefghijkl"))
    for i in reversed(range(12)):
        doc.spans[f"coref_clusters_{i + 1}"] = [doc[i : i + 1]]
    assert texts_of(doc) == [[letter] for letter in "abcdefghijkl"]


def test_clusters_of_joined_documents_stay_apart_and_are_saved(nlp):
    doc, other = nlp(TEXT), nlp("Ann. She.")
    joined = Doc.from_docs([doc, doc, nlp("x"), other])
    assert texts_of(joined) == [*CLUSTERS, *CLUSTERS, ["Ann", "She"]]
    data = spacy.tokens.DocBin(docs=[joined, doc]).to_bytes()
    again, single = spacy.tokens.DocBin().from_bytes(data).get_docs(spacy.blank("en").vocab)
    assert texts_of(again) == texts_of(joined.copy()) == texts_of(joined)
    assert texts_of(single) == CLUSTERS


def test_mentions_stay_where_they_are_if_tokens_are_merged_or_split(nlp):
    doc = nlp(TEXT)
    words = [token.text for token in doc]
    her, read = words.index("her"), words.index("read")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[:2])
        retokenizer.merge(doc[her : her + 2])
        retokenizer.split(doc[read], ["re", "ad"], heads=[doc[read], doc[read]])
    assert texts_of(doc) == [["Ann sold", "her book", "She"], ["Bob"], ["her book", "it"]]


def test_saved_pipeline_contains_the_model(preset, tmp_path, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(preset, "copy")
    nlp = pipeline(preset="copy", dtype="float32")
    monkeypatch.chdir("/")
    assert texts_of(nlp(TEXT)) == CLUSTERS
    nlp.to_disk(tmp_path / "pipeline")
    shutil.rmtree(tmp_path / "copy")
    loads, from_preset = [], ks.SpanBertCoreferenceResolver.from_preset

    def spy(folder, dtype):
        loads.append((folder, dtype))
        return from_preset(folder, dtype=dtype)

    monkeypatch.setattr(ks.SpanBertCoreferenceResolver, "from_preset", spy)
    monkeypatch.chdir(tmp_path)
    loaded = spacy.load("pipeline")
    monkeypatch.chdir("/")
    assert loads == []  # The first document loads the model.
    assert texts_of(loaded(TEXT)) == CLUSTERS
    folder = str(tmp_path / "pipeline" / "spanbert_coreference" / "preset")
    assert loads == [(folder, "float32")]
    resolvers = [p.get_pipe("spanbert_coreference").resolver for p in (nlp, loaded)]
    for old, new in zip(*(resolver.get_weights() for resolver in resolvers), strict=True):
        assert (old == new).all()
    nlp.from_disk(tmp_path / "pipeline")  # It replaces the model that was loaded.
    assert texts_of(nlp(TEXT)) == CLUSTERS and loads[1:] == loads[:1]


def test_pipe_processes_documents_in_batches(nlp, asked):
    docs = list(nlp.pipe([TEXT, "", " \n", "x", "Ann. She."], batch_size=3))
    assert [texts_of(doc) for doc in docs] == [CLUSTERS, [], [], [], [["Ann", "She"]]]
    assert [len(texts) for texts, _ in asked] == [1, 2]


def test_missing_sentences_error_names_the_sentencizer(preset, asked):
    nlp = spacy.blank("en")
    nlp.add_pipe("spanbert_coreference", config={"preset": preset})
    with pytest.raises(ValueError, match='nlp.add_pipe."sentencizer".*Received: .Ann left'):
        nlp("Ann left. She ran.")
    failed = []
    nlp.set_error_handler(lambda name, component, docs, error: failed.extend(docs))
    assert list(nlp.pipe(["Ann left. She ran.", ""])) == []
    assert [doc.text for doc in failed] == ["Ann left. She ran.", ""]


def test_missing_preset_errors_name_the_setting(asked):
    with pytest.raises(ValueError, match='config={"preset": "a/folder"}'):
        pipeline()(TEXT)
    with pytest.raises(ValueError, match="must be a folder .* Received: 'none', which is not in "):
        pipeline(preset="none")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_quantized_presets_are_saved_and_can_be_converted(preset, tmp_path):
    resolver = ks.SpanBertCoreferenceResolver.from_preset(preset)
    resolver.quantize("int8")
    resolver.save_to_preset(tmp_path / "int8")
    pipeline(preset=str(tmp_path / "int8")).to_disk(tmp_path / "pipeline")
    # Into the folder that it came from.
    spacy.load(tmp_path / "pipeline").to_disk(tmp_path / "pipeline")
    component = spacy.load(tmp_path / "pipeline").get_pipe("spanbert_coreference")
    assert component.resolver.resolve("Ann left.") == resolver.resolve("Ann left.")
    assert any(layer.quantization_mode for layer in component.resolver.backbone.layers)
    nlp = pipeline(preset=str(tmp_path / "int8"), dtype="float32")
    nlp.to_disk(tmp_path / "floats")
    loaded = spacy.load(tmp_path / "floats").get_pipe("spanbert_coreference")
    for component in [nlp.get_pipe("spanbert_coreference"), loaded]:
        assert {weight.dtype for weight in component.resolver.weights} == {"float32"}


@pytest.mark.filterwarnings("ignore")  # Python and JAX warn of forks.
def test_forked_processes_refuse_a_model_of_their_parent(nlp):
    assert texts_of(nlp(TEXT)) == CLUSTERS
    with pytest.raises(ValueError, match="forked after a model was loaded.*n_process=1"):
        list(nlp.pipe([TEXT] * 2, n_process=2))
    assert texts_of(nlp(TEXT)) == CLUSTERS


@pytest.mark.long
@pytest.mark.every_backend
def test_processes_load_the_model_before_the_first_document_or_if_they_are_spawned(preset):
    script = f"""
import multiprocessing, spacy, keras_spanbert_spacy
if __name__ == "__main__":
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("spanbert_coreference", config={{"preset": {preset!r}}})
    texts = ["Ann sold her book. She came."] * 2
    forked = [doc.to_json() for doc in nlp.pipe(texts, n_process=2)]
    single = [doc.to_json() for doc in nlp.pipe(texts)]
    assert forked == single
    if {keras.backend.backend() == "torch"}:  # Spawned processes are the same on each backend.
        multiprocessing.set_start_method("spawn", force=True)
        assert single == [doc.to_json() for doc in nlp.pipe(texts, n_process=2)]
"""
    path = pathlib.Path(preset).parent / "script.py"
    path.write_text(script)
    run_python("-W", "ignore", path, PYTHONPATH=str(ROOT))


def test_failed_saving_keeps_the_old_model(nlp, tmp_path, monkeypatch):
    def fail(tokenizer, path):
        raise OSError("No space left")

    nlp.to_disk(tmp_path / "pipeline")
    folder = tmp_path / "pipeline" / "spanbert_coreference"
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    monkeypatch.setattr(ks.SpanBertTokenizer, "save_assets", fail)
    for name in ["pipeline", "other"]:
        with pytest.raises(OSError, match="No space left"):
            nlp.to_disk(tmp_path / name)
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before
    assert not (tmp_path / "other" / "spanbert_coreference").exists()
