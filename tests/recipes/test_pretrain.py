"""Pretraining with train.py: results, interruption and errors."""

import os
import re
import shutil
import signal
import subprocess
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import train_script
from absl.testing import flagsaver
from processes import run_python
from train_script import TIMEOUT, StoppedError, check_error, run, run_in_process, start, stop

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.formats.vocabulary import SPECIAL_TOKENS
from keras_spanbert.recipes import corpora, pretrain
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.run import check_flags, parse_flags
from keras_spanbert.runs import reports

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

TINY = ["--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--size=tiny"]
# With a preset, which has a vocabulary and a size.
OF_PRESETS = ["--sequence_length=16", "--batch_size=4", "--eval_steps=2", "--steps=2"]


@pytest.fixture(scope="module")
def trained(texts, tmp_path_factory):
    """The folder, stdout and stderr of a finished run."""
    output = tmp_path_factory.mktemp("trained") / "run"
    code, out, err = run(
        f"--train_data={texts}", f"--output={output}", "--steps=6", "--eval_every=4",
        "--eval_steps=2", f"--export={output}-served", *TINY,
    )  # fmt: skip
    assert code == 0, err
    return output, out, err


@pytest.fixture(scope="module")
def evaluated(trained, texts):
    """The cross-entropies of `trained` on its held-out documents, computed again."""
    model = ks.SpanBertPretrainer.from_preset(str(trained[0]))
    preprocessor, model.preprocessor = model.preprocessor, None
    dataset = Corpus(texts, held_out=0.05).evaluation_dataset(preprocessor, 4, steps=2)
    model.compile()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        results = model.evaluate(dataset, verbose=0, return_dict=True)
    return {head: results[f"{head}_cross_entropy"] for head in ["mlm", "sbo"]}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("", "--size=tiny --steps=1600 --sequence_length=32 --vocabulary_size=3000"),
        ("--size=tiny --epochs=1 --vocabulary=vocab.txt", "--sequence_length=32"),
        ("--task=prepare --sequence_length=16", "--vocabulary_size=3000"),
        (" ".join([*TINY, "--steps=3"]), None),
        ("--preset=hf://a/b", None),
    ],
)
def test_small_defaults_are_named(texts, flags, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.txt").touch()
    with flagsaver.flagsaver():
        check_flags(parse_flags(["train.py", f"--train_data={texts}", *flags.split()]))
        corpora.open_corpora(must_hold_out=True)
    out = capsys.readouterr().out
    assert (f"Warning: the defaults {named} are for a first try" in out) == bool(named), out
    assert out.count("Warning") == bool(named)


def test_a_first_run_says_what_to_do_next(trained, capsys):
    output, *_ = trained
    _, plot, fill, *commands = pretrain.next_steps(str(output)).split("\n")
    assert os.path.exists(plot.split(": ", 1)[1])
    code = re.fullmatch(r'  fill a blank: python -c "(.*)"', fill)[1]
    exec(code)  # The tokens of the blank.
    assert "'text'" in capsys.readouterr().out
    for command in commands:
        assert " python train.py --" in command


def test_size_flag_has_the_sizes_of_the_model():
    assert list(ks.SpanBertBackbone.SIZES) == FLAGS["size"].parser.enum_values


def test_run_writes_its_files_and_shows_examples_without_warnings(trained, texts):
    output, out, err = trained
    names = {path.name for path in output.iterdir()}
    assert set(reports.FILES) <= names
    assert {"config.json", "model.weights.h5", "preprocessor.json", "tokenizer.json"} <= names
    assert not any(name.endswith(".partial") or name.startswith("tmp") for name in names)
    for name in ["loss.png", "span_lengths.png"]:
        assert (output / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert str(output) in out.splitlines()[-1]
    assert f"Wrote the SavedModel {output}-served/1" in out
    assert os.path.isfile(f"{output}-served/1/saved_model.pb")
    # For example the warning of Keras about the end of a dataset.
    assert err == ""
    flags = files.read_json(trained[0] / "run.json")["flags"]
    assert flags["train_data"] == [texts] and flags["steps"] == 6
    assert flags["mask_rate"] == 0.15  # Including defaults.
    assert "help" not in flags
    blanks = re.findall(r"^  .*\[\w+\].*   MLM: .* \(\d+%\)", out, re.MULTILINE)
    assert len(blanks) == len(set(blanks)) == 3


def test_reloaded_preset_has_the_reported_metrics(trained, evaluated):
    output, out, _ = trained
    metrics = files.read_json(output / "metrics.json")
    assert metrics["steps"] == 6 and metrics["seconds"] > 0
    rows = files.read_csv(output / "history.csv")
    assert [row["step"] for row in rows] == ["4", "6"]
    assert len([line for line in out.splitlines() if line.startswith("step ")]) == 2
    for head, value in evaluated.items():
        assert metrics[f"{head}_cross_entropy"] == pytest.approx(value, rel=1e-3)
        assert 0 <= metrics[f"{head}_accuracy"] <= 1
        # About ten words of equal frequency, and the full stop.
        assert 1.5 < metrics[f"{head}_unigram_entropy"] < 3.5
        for name in [f"{head}_cross_entropy", f"{head}_accuracy"]:
            assert float(rows[-1][f"val_{name}"]) == pytest.approx(metrics[name])


# test_run_shows_and_writes_its_objectives starts from a preset of this library.
def test_checkpoint_keeps_its_vocabulary(trained, evaluated, texts, tmp_path, capsys):
    preset, output = tmp_path / "huggingface", tmp_path / "more"
    ks.checkpoints.to_huggingface(ks.SpanBertPretrainer.from_preset(str(trained[0])), preset)
    before = {path.name: path.read_bytes() for path in preset.iterdir() if path.is_file()}
    run_in_process(
        f"--train_data={texts}", f"--output={output}", f"--preset={preset}", *OF_PRESETS,
        "--learning_rate=0",
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "Training a vocabulary" not in out
    assert "0 left unused, 0 initialized" in out
    assert "Cased, according to tokenizer_config.json" in out
    # The preset is also evaluated before training. With a learning rate of 0, it does not change.
    rows = files.read_csv(output / "history.csv")
    assert rows[0]["step"] == "0"
    for head, value in evaluated.items():
        for row in rows:
            assert float(row[f"val_{head}_cross_entropy"]) == pytest.approx(value, rel=1e-3)
    assert ks.SpanBertTokenizer.from_preset(str(output)).get_vocabulary() == (
        ks.SpanBertTokenizer.from_preset(str(trained[0])).get_vocabulary()
    )
    assert before == {path.name: path.read_bytes() for path in preset.iterdir() if path.is_file()}


@pytest.mark.once("torch")
def test_run_shows_and_writes_its_objectives(texts, tmp_path, capsys):
    output = tmp_path / "run"
    data = f"--train_data={texts}"
    flags = [data, "--steps=2", "--eval_steps=2", *TINY, "--objectives=mlm,nsp"]
    run_in_process(*flags, f"--output={output}")
    out = capsys.readouterr().out
    assert re.search(r"held-out MLM \S+, NSP \S+ nats", out)
    assert re.search(r"held-out NSP cross-entropy .* the coin-flip baseline of 0\.693; acc", out)
    assert "   MLM: " in out and "SBO" not in out
    metrics = files.read_json(output / "metrics.json")
    assert {name[:3] for name in metrics if name.endswith("_unigram_entropy")} == {"mlm", "nsp"}
    assert metrics["nsp_unigram_entropy"] == pytest.approx(np.log(2))
    row = files.read_csv(output / "history.csv")[-1]
    assert float(row["val_nsp_accuracy"]) == pytest.approx(metrics["nsp_accuracy"])
    assert row["nsp_cross_entropy"] and not any("sbo" in name for name in [*row, *metrics])
    # A run from the preset keeps its objectives unless flags change them.
    for more, objectives in [([], ["mlm", "nsp"]), (["--objectives=mlm"], ["mlm"])]:
        other = tmp_path / "-".join(objectives)
        run_in_process(data, f"--output={other}", f"--preset={output}", *OF_PRESETS, *more)
        assert files.read_json(other / "run.json")["flags"]["objectives"] == objectives
        model = ks.SpanBertPretrainer.from_preset(other)
        assert model.objectives == tuple(objectives)
        model.check_preprocessor()


@pytest.mark.parametrize(("is_preset", "rate"), [(False, 2e-3), (True, 1e-4)])
def test_presets_are_trained_more_slowly(trained, texts, tmp_path, monkeypatch, is_preset, rate):
    monkeypatch.setattr("keras_spanbert.recipes.fit.fit", stop)
    flags = [f"--preset={trained[0]}", *OF_PRESETS] if is_preset else TINY
    with pytest.raises(StoppedError) as error:
        run_in_process(
            f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--dropout=0.2", *flags
        )
    _, settings = error.value.args
    assert settings.model.backbone.dropout == 0.2
    assert settings.learning_rate == rate and settings.evaluate_first is is_preset
    assert settings.num_predictions == 3  # 15% of 16 tokens, rounded up.


def test_text_is_read_twice_before_the_first_step(texts, tmp_path, monkeypatch):
    from keras_spanbert.data import corpus

    read, read_documents = [], corpus.read_documents

    def count(path, *args):
        read.append(path)
        return read_documents(path, *args)

    monkeypatch.setattr(corpus, "read_documents", count)
    monkeypatch.setattr(ks.SpanBertPretrainer, "fit", stop)
    with pytest.raises(StoppedError):
        run_in_process(f"--train_data={texts}", f"--output={tmp_path / 'run'}", *TINY)
    assert len(read) == 2 * len(set(read)) == 2 * 20


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"sequence_length": 4}, "--sequence_length=4 must be 5 or more"),
        ({"sequence_length": 16, "mask_rate": 1}, "--mask_rate=1.0 must be smaller"),
        ({"sequence_length": 16}, "documents must be longer, or --eval_steps=100 larger"),
        ({"sequence_length": 4, "sbo_weight": 0}, None),  # SBO is disabled.
    ],
)
def test_warning_without_sbo_targets_names_flag(flags, capsys, given, hint):
    flags(**given)
    pretrain.log_baselines(9, 3, {"mlm": 1.0, "sbo": 0.0})
    out = capsys.readouterr().out
    assert f"SBO learns nothing: {hint}" in out if hint else "learns nothing" not in out


@pytest.mark.parametrize(
    ("saved", "length", "expected"),
    # A task's own length is not that of its pretraining.
    [(16, 8, None), (8, 4, None), (8, 3, "8 tokens"), (None, 7, "16 tokens")],
)
def test_short_blocks_of_a_preset_are_warned_about(flags, capsys, saved, length, expected):
    flags(sequence_length=length)
    found = {ks.SpanBertPretrainerPreprocessor: saved and {"sequence_length": saved}}
    source = SimpleNamespace(saved=found.__getitem__)
    pretrain._warn_about_short_blocks(source, longest=16)
    warning = f"Warning: --sequence_length={length} is less than half of the preset's {expected}"
    assert (warning in capsys.readouterr().out) == (expected is not None)


def test_resumed_run_does_not_repeat_the_warning(trained, texts, tmp_path, capsys):
    output = tmp_path / "run"
    run_in_process(
        f"--train_data={texts}", f"--preset={trained[0]}", f"--output={output}", *OF_PRESETS,
        "--sequence_length=7", "--min_block_tokens=1", "--checkpoint_every=1",
        "--keep_checkpoints=2",
    )  # fmt: skip
    assert capsys.readouterr().out.count("Warning: --sequence_length=") == 1
    shutil.rmtree(output / "checkpoints" / "step-2")
    run_in_process(f"--output={output}", "--resume")
    out = capsys.readouterr().out
    assert "Continuing from step 1" in out and "Warning: --sequence_length=" not in out


def interrupt(process, line_start):
    """Sends SIGINT after a line with this start. Returns the rest of stdout, and stderr."""
    try:
        for line in process.stdout:
            if line.startswith(line_start):
                break
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()


# tests/runs/test_interruption.py tests both signals on every backend, and tests/distribution tests
# SIGTERM on JAX and PyTorch.
@pytest.mark.long
def test_signal_saves_a_preset_and_ends_the_run(texts, tmp_path):
    output = tmp_path / "run"
    with start(
        f"--train_data={texts}", f"--output={output}", "--steps=100000", "--eval_every=2",
        "--eval_steps=1", *TINY, popen=subprocess.Popen,
    ) as process:  # fmt: skip
        out, err = interrupt(process, "step ")
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Interrupted at step" in out and f"--resume --output={output}" in out
    assert len(files.read_csv(output / "history.csv")) >= 1
    metrics = files.read_json(output / "metrics.json")
    assert 2 <= metrics["steps"] < 100_000
    # --resume needs it.
    assert (output / "checkpoints" / f"step-{metrics['steps']}").is_dir()
    weights = ks.SpanBertPretrainer.from_preset(str(output)).get_weights()
    assert all(np.isfinite(weight).all() for weight in weights)


@pytest.mark.long
def test_ctrl_c_before_training_leaves_no_files(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(cache))
    for i in range(12):
        (tmp_path / f"{i}.txt").write_text(f"plum apple fig {i} " * 30_000)
    with start(f"--train_data={tmp_path}/*.txt", f"--output={tmp_path / 'run'}", *TINY) as process:
        _, err = interrupt(process, "Tokenizing: 0/")
    assert process.returncode == 130, err
    assert err == "train.py: interrupted before training. Nothing was saved\n"
    assert {path.suffix for path in cache.glob("*")} <= {".lock"}
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_ctrl_c_before_the_first_step_saves(texts, tmp_path, monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ks.SpanBertPretrainer, "fit", interrupted)
    with pytest.raises(SystemExit) as error:
        run_in_process(f"--train_data={texts}", f"--output={tmp_path / 'run'}", *TINY)
    assert error.value.code == 130
    assert "Interrupted at step 0" in capsys.readouterr().out
    assert files.read_json(tmp_path / "run" / "metrics.json")["steps"] == 0
    ks.SpanBertPretrainer.from_preset(str(tmp_path / "run"))


@pytest.fixture
def check_fails(texts, tmp_path, capsys, monkeypatch):
    """Runs train.py with flags and checks that the error names the values.

    Also checks that it leaves no output, so that the corrected command can use the same folder.
    """
    monkeypatch.chdir(tmp_path)

    def check(flags, *values):
        has_vocabulary = any(flag.startswith(("--preset", "--vocabulary=")) for flag in flags)
        usual = OF_PRESETS if has_vocabulary else TINY
        data = [f"--train_data={texts}", f"--output={tmp_path / 'output'}"]
        train_script.check_fails(capsys, [*data, *usual, *flags], *values)
        assert not (tmp_path / "output").exists()

    return check


# tests/data/test_corpus.py tests more errors in text.
@pytest.mark.parametrize(
    ("content", "flags", "hint"),
    [
        (b" \n\n", [], "empty or blank"),
        (b"caf\xe9", [], "--encoding_errors=replace"),
        (b"a\x00b", ["--encoding_errors=replace"], "`tr -d '\\000'` removes zero bytes. Received"),
        ("text".encode("utf-16"), ["--encoding_errors=replace"], "-t UTF-8`. Received"),
        (b"one", [], "try --document_boundary=blank_line or line. Received"),
        (b"one", ["--document_boundary=blank_line"], "try --document_boundary=line. Received"),
        (b"one", ["--document_boundary=line"], "use --held_out=0). Received"),
        (b"short\nshort", ["--document_boundary=line"], "min_block_tokens"),
    ],
)
def test_hint_for_invalid_text_is_another_setting(check_fails, tmp_path, content, flags, hint):
    (tmp_path / "a.txt").write_bytes(content)
    check_fails(["--train_data=a.txt", *flags], hint)


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        (["--eval_data=short.txt"], ["min_block_tokens"]),
        (["--train_data=folder"], ["folder"]),
        (["--vocabulary=no_mask.txt"], ["`--vocabulary`", "no_mask.txt", "[MASK]"]),
        (["--preset={preset}", "--vocabulary=vocab.txt"], ["vocab.txt", "6 tokens", "{size}"]),
        (["--preset={preset}", "--sequence_length=17"], ["`--sequence_length`", "17", "16"]),
        (["--preset=folder"], ["folder"]),
        (["--epochs=1", "--warmup_steps=900"], ["`--warmup_steps` must be at most the", "=900"]),
        (["--batch_size=1000000000"], ["--batch_size", "rows", "batch_size=1000000000"]),
    ],
)
def test_invalid_files_and_sizes_are_named(check_fails, trained, tmp_path, flags, values):
    (tmp_path / "folder").mkdir()
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "apple"]))
    (tmp_path / "no_mask.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\napple\nplum")
    size = len(ks.SpanBertTokenizer.from_preset(str(trained[0])).get_vocabulary())
    flags = [flag.format(preset=trained[0]) for flag in flags]
    check_fails(flags, *(value.format(size=size) for value in values))


@pytest.mark.parametrize(("flags", "code"), [(["--help"], 0), (["--mask_rate=2"], 2)])
def test_help_and_errors_load_no_backend(flags, code):
    program = (
        "import sys\nfrom train import train as main\n"
        f"sys.argv = ['train.py', *{flags}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    assert not {'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)\n"
        "    raise\n"
    )
    _, err = run_python("-c", program, code=code)
    if code:
        check_error(code, err, *flags[0].split("="))
