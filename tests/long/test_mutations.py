"""Breaks behaviours on purpose: the tests that run by default must notice each of them."""

import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

pytestmark = pytest.mark.once
ROOT = pathlib.Path(__file__).parent.parent.parent
# Name of the behaviour, file in `keras_spanbert/`, code, broken code, tests that must fail.
MUTATIONS = [
    ("exactly ceil(0.15 n) tokens are masked", "layers/span_masks.py", "xp.ceil(mask_rate * ",
     "xp.floor(mask_rate * ", "layers/test_span_masks.py::test_masks_equal_sequential_drawing"),
    ("SBO fuses the left boundary before the right one", "layers/span_boundary_head.py",
     "[left, right, position]", "[right, left, position]", "layers/test_span_boundary_head.py"),
    ("padding is not attended to", "layers/attention.py",
     "ops.logical_or(padding_mask, ops.logical_not(has_tokens))", "ops.ones_like(padding_mask)",
     "layers/test_attention.py"),
    ("biases are not decayed", "training/optimizer.py", '["bias", "gamma", "beta"]',
     '["gamma", "beta"]', "training/test_optimizer.py"),
    ("the first step of the warm-up updates the weights", "training/optimizer.py",
     'ops.cast(step, "float32") + 1.0', 'ops.cast(step, "float32")', "training/test_optimizer.py"),
    ("checkpoints cannot run code", "formats/tensors.py", "weights_only=True", "weights_only=False",
     "formats/test_sources.py::test_pickle_with_code_is_refused_and_not_run"),
    ("a failed write leaves the old file", "files.py",
     "with open(partial, mode, **text) as file:", "with open(path, mode, **text) as file:",
     "test_files.py"),
    ("SQuAD's scores ignore articles", "metrics/squad.py",
     '_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))',
     "text.lower().translate(_PUNCTUATION)", "metrics/test_squad.py"),
    ("MUC counts the clusters that a prediction joins", "metrics/coreference.py",
     "common.total() - len(common)", "len(common)",
     "metrics/test_coreference.py"),
    ("a correct no_relation is not a true positive", "metrics/relation.py", "a == b != no_relation",
     "a == b", "metrics/test_relation.py"),
    ("epochs have different orders", "data/batches.py", "default_rng([self.seed, epoch])",
     "default_rng([self.seed])", "data/test_corpus.py::test_epoch_has_each_block_once"),
    ("text with other settings is tokenized again", "data/corpus.py",
     "crosses, length, min_tokens]", "crosses, length]",
     "data/test_corpus.py::test_any_change_is_tokenized_again"),
    ("prepared rows come from their shard", "data/prepared/corpus.py", "(stops[i - 1] if i else 0)",
     "0", "data/test_prepared.py"),
    ("choices that a question lacks are not chosen", "tasks/multiple_choice/model.py",
     'ops.where(ops.cast(mask, "bool"), logits,', 'ops.where(ops.cast(mask >= 0, "bool"), logits,',
     "tasks/multiple_choice/test_model.py::test_padding_choices_change_nothing"),
    ("a label of a multi-label model needs a probability of 0.5",
     "tasks/classification/model.py", "logits >= 0.0", "logits >= 0.5",
     "tasks/classification/test_multi_label.py"),
    ("a span without antecedent starts no cluster", "tasks/coreference/inference.py",
     "[-xp.ones_like(antecedents[:, :1]), antecedents]",
     "[xp.zeros_like(antecedents[:, :1]), antecedents]", "tasks/coreference/test_inference.py"),
    ("I-X continues only an entity of type X", "tasks/token_classification/decoding.py",
     "is_bound = is_inside & np.isin(kind, kind[prefix == ",
     "is_bound = ~is_inside & np.isin(kind, kind[prefix == ",
     "tasks/token_classification/test_decoding.py"),
    ("the best of equal answers is kept", "tasks/question_answering/decoding.py",
     "if text not in seen:", "if True:", "tasks/question_answering/test_decoding.py"),
    ("uncased models remove accents", "text/normalization.py", "strip_accents=lowercase,",
     "strip_accents=False,", "models/test_tokenizer.py"),
    ("layer normalization divides by the standard deviation", "layers/sublayers.py",
     "epsilon=parent.layer_norm_epsilon", "epsilon=1e-2",
     "layers/test_transformer_layer.py formats/test_huggingface.py"),
    ("a run does not overwrite a folder", "recipes/output_paths.py",
     "if names and not (FLAGS.resume and is_run):", "if False:",
     "recipes/test_output_paths.py recipes/test_checks.py"),
    ("an untrained head is not evaluated", "recipes/fine_tuning.py",
     "if untrained and not FLAGS.train_data:", "if False:", "recipes/test_checks.py"),
    ("a mistake of the user ends with exit code 2", "recipes/terminal.py", "sys.exit(2)",
     "sys.exit(1)", "recipes/test_checks.py"),
    ("a damaged checkpoint is set aside", "runs/checkpoint_folder.py",
     "_verify_checksums(folder)\n", "pass\n",
     "runs/test_checkpoint_folder.py"),
]  # fmt: skip
# Imports other packages once, which takes longer than most tests, and forks for each line of tests.
SERVER = """
import os, sys
import torch, keras, keras_hub, pytest, tensorflow_text

for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(2, 1)
        options = ["-qx", "-p", "no:cacheprovider", "--basetemp=temporary", "-m", "not long"]
        os._exit(pytest.main([*options, *line.split()]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the checkout, without its presets."""
    folder = tmp_path_factory.mktemp("mutations") / "checkout"
    ignored = shutil.ignore_patterns(".*", "saved_models", "site")
    return shutil.copytree(ROOT, folder, ignore=ignored)


@pytest.fixture(scope="module")
def fails(checkout):
    """Returns a function: does a test that runs by default fail, on one backend?"""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(backend):
            # Compiles each module once: a changed file has another time than its compiled one.
            environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONDONTWRITEBYTECODE": ""}
            environment.pop("PYTHONPATH", None)
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            server = subprocess.Popen(
                [sys.executable, "-c", SERVER], cwd=checkout, env=environment, text=True, bufsize=1,
                **pipes,
            )  # fmt: skip
            return stack.enter_context(server), log

        def fails(tests, backend) -> bool:
            server, log = start(backend)
            print(*(f"tests/{name}" for name in tests.split()), file=server.stdin)
            code = server.stdout.readline().strip()
            log.seek(0)
            print(log.read())
            log.seek(0)
            log.truncate()
            assert code in ("0", "1", "5")
            return code == "1"

        yield fails


@pytest.mark.parametrize(
    "file, code, broken, tests", [pytest.param(*row[1:], id=row[0]) for row in MUTATIONS]
)
def test_broken_code_fails_a_test(checkout, fails, file, code, broken, tests):
    path = checkout / "keras_spanbert" / file
    content = path.read_text()
    assert content.count(code) == 1, f"The code of this mutation must occur once in {file}"
    path.write_text(content.replace(code, broken))
    try:
        assert any(fails(tests, backend) for backend in ["tensorflow", "torch"])
    finally:
        path.write_text(content)
