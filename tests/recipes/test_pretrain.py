"""train.py as its users run it: results, interruption and mistakes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from train_script import ROOT, TIMEOUT, check_mistake, in_process, run, start

import keras_spanbert as ks
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.vocabulary import SPECIAL_TOKENS
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.run import parse_flags
from keras_spanbert.runs import reports

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

TINY = ["--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--size=tiny"]


@pytest.fixture(scope="module")
def trained(texts, tmp_path_factory):
    """A finished run's folder, its output and what it wrote to stderr."""
    output = tmp_path_factory.mktemp("trained") / "run"
    code, out, err = run(
        f"--train_data={texts}", f"--output={output}", "--steps=6", "--eval_every=4",
        "--eval_steps=2", f"--export={output}-served", *TINY,
    )  # fmt: skip
    assert code == 0, err
    return output, out, err


@pytest.fixture(scope="module")
def evaluated(trained, texts):
    """What `trained` reaches, evaluated anew."""
    return evaluate(trained[0], texts)


def evaluate(preset, texts):
    """Cross-entropies of a preset on the documents that `trained` holds out."""
    model = ks.SpanBertPretrainer.from_preset(str(preset))
    preprocessor, model.preprocessor = model.preprocessor, None
    dataset = Corpus(texts, held_out=0.05).evaluation_dataset(preprocessor, 4, steps=2)
    model.compile()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        results = model.evaluate(dataset, verbose=0, return_dict=True)
    return {head: results[f"{head}_cross_entropy"] for head in ["mlm", "sbo"]}


def read_history(output):
    with open(output / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.once
def test_sizes_of_the_flag_are_the_models():
    assert list(ks.SpanBertBackbone.SIZES) == FLAGS["size"].parser.enum_values


# === Runs ===


@pytest.mark.once
def test_run_writes_all_its_files_and_nothing_else(trained):
    output, out, _ = trained
    names = {path.name for path in output.iterdir()}
    assert set(reports.FILES) <= names
    assert {"config.json", "model.weights.h5", "preprocessor.json", "tokenizer.json"} <= names
    assert not any(name.endswith(".partial") or name.startswith("tmp") for name in names)
    for name in ["loss.png", "span_lengths.png"]:
        assert (output / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert str(output) in out.splitlines()[-1]


@pytest.mark.once
def test_exported_model_gives_embeddings_of_strings(trained):
    output, out, _ = trained
    path = f"{output}-served/1"
    assert f"Wrote the SavedModel {path}" in out
    serve = tf.saved_model.load(path).signatures["serving_default"]
    embeddings = serve(text=tf.constant(["Some words.", ""]))["embeddings"].numpy()
    backbone = ks.SpanBertBackbone.from_preset(str(output))
    assert embeddings.shape[0] == 2 and embeddings.shape[2] == backbone.hidden_dim
    assert np.isfinite(embeddings).all()


@pytest.mark.once
def test_run_writes_no_warnings(trained):
    # Such as Keras's on a dataset of unknown length that ends.
    assert trained[2] == ""


@pytest.mark.once
def test_reloaded_preset_reaches_the_metrics_that_the_run_reports(trained, evaluated):
    output, *_ = trained
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["steps"] == 6 and metrics["seconds"] > 0
    for head, value in evaluated.items():
        assert metrics[f"{head}_cross_entropy"] == pytest.approx(value, rel=1e-3)
        assert 0 <= metrics[f"{head}_accuracy"] <= 1
        # Some ten words of equal frequency, and the stop.
        assert 1.5 < metrics[f"{head}_unigram_entropy"] < 3.5


@pytest.mark.once
def test_history_has_a_row_an_evaluation_up_to_the_last_step(trained):
    output, out, _ = trained
    rows = read_history(output)
    assert [row["step"] for row in rows] == ["4", "6"]
    metrics = json.loads((output / "metrics.json").read_text())
    for name in ["mlm_cross_entropy", "sbo_cross_entropy", "mlm_accuracy", "sbo_accuracy"]:
        assert float(rows[-1][f"val_{name}"]) == pytest.approx(metrics[name])
    assert len([line for line in out.splitlines() if line.startswith("step ")]) == 2


@pytest.mark.once
def test_run_record_repeats_the_flags(trained, texts):
    output, *_ = trained
    record = json.loads((output / "run.json").read_text())
    assert record["backend"] == keras.backend.backend()
    assert record["flags"]["train_data"] == [texts]
    assert record["flags"]["steps"] == 6 and record["flags"]["sequence_length"] == 16
    assert record["flags"]["mask_rate"] == 0.15  # Defaults too.
    assert "help" not in record["flags"]


@pytest.mark.once
def test_run_shows_what_it_learnt_on_held_out_blanks(trained):
    _, out, _ = trained
    assert "held-out words seen in training" in out and "Drawn at random" in out
    assert re.search(r"before training, \S+% after", out)
    assert re.search(r"^    \S+% -> \S+%   MLM: ", out, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.once
def test_preset_continues_in_another_output_and_keeps_its_vocabulary(
    trained, evaluated, texts, tmp_path, capsys
):
    preset, *_ = trained
    before = {path.name: path.read_bytes() for path in preset.iterdir() if path.is_file()}
    output = tmp_path / "more"
    in_process(
        f"--train_data={texts}", f"--output={output}", f"--preset={preset}", "--steps=2",
        "--sequence_length=16", "--batch_size=4", "--eval_steps=2", "--learning_rate=0",
    )  # fmt: skip
    assert "Training a vocabulary" not in capsys.readouterr().out
    # Without learning, the preset's model comes out as it went in.
    metrics = json.loads((output / "metrics.json").read_text())
    for head, value in evaluated.items():
        assert metrics[f"{head}_cross_entropy"] == pytest.approx(value, rel=1e-3)
    assert ks.SpanBertTokenizer.from_preset(str(output)).get_vocabulary() == (
        ks.SpanBertTokenizer.from_preset(str(preset)).get_vocabulary()
    )
    assert before == {path.name: path.read_bytes() for path in preset.iterdir() if path.is_file()}


@pytest.mark.slow
@pytest.mark.once
def test_checkpoint_of_another_library_starts_at_its_loss_with_its_vocabulary(
    trained, evaluated, texts, tmp_path, capsys
):
    preset, *_ = trained
    ks.checkpoints.to_huggingface(
        ks.SpanBertPretrainer.from_preset(str(preset)), tmp_path / "huggingface"
    )
    output = tmp_path / "more"
    in_process(
        f"--train_data={texts}", f"--output={output}",
        f"--preset={tmp_path / 'huggingface'}", "--steps=2", "--sequence_length=16",
        "--batch_size=4", "--eval_steps=2", "--learning_rate=0",
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "0 left unused, 0 started fresh" in out
    assert "Cased: so says tokenizer_config.json" in out
    rows = read_history(output)
    assert rows[0]["step"] == "0"
    for head, value in evaluated.items():
        for row in rows:
            assert float(row[f"val_{head}_cross_entropy"]) == pytest.approx(value, rel=1e-3)
    assert ks.SpanBertTokenizer.from_preset(str(output)).get_vocabulary() == (
        ks.SpanBertTokenizer.from_preset(str(preset)).get_vocabulary()
    )


# Of the two, tests/runs/test_interruption.py tells no difference on any backend.
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT if keras.backend.backend() == "tensorflow" else signal.SIGTERM],
)
def test_signal_saves_a_preset_and_exits(number, texts, tmp_path):
    output = tmp_path / "run"
    with start(
        f"--train_data={texts}", f"--output={output}", "--steps=100000", "--eval_every=2",
        "--eval_steps=1", *TINY, popen=subprocess.Popen,
    ) as process:  # fmt: skip
        try:
            for line in process.stdout:
                if line.startswith("step "):
                    break
            process.send_signal(number)
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert "Interrupted at step" in out and f"--resume --output={output}" in out
    assert len(read_history(output)) >= 1
    metrics = json.loads((output / "metrics.json").read_text())
    assert 2 <= metrics["steps"] < 100_000
    # What --resume goes on from.
    assert (output / "checkpoints" / f"step-{metrics['steps']}").is_dir()
    assert all(np.isfinite(value) for value in evaluate(output, texts).values())


@pytest.mark.slow
@pytest.mark.once
def test_ctrl_c_while_data_are_read_stops_at_once(texts, tmp_path):
    with start(f"--train_data={texts}", f"--output={tmp_path / 'run'}", *TINY) as process:
        try:
            assert process.stdout.readline().startswith("Reading")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err == "train.py: interrupted before training, nothing was saved\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.once
def test_ctrl_c_before_the_first_step_saves_too(texts, tmp_path, monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ks.SpanBertPretrainer, "fit", interrupted)
    with pytest.raises(SystemExit) as error:
        in_process(f"--train_data={texts}", f"--output={tmp_path / 'run'}", *TINY)
    assert error.value.code == 130
    assert "Interrupted at step 0" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["steps"] == 0
    ks.SpanBertPretrainer.from_preset(str(tmp_path / "run"))


@pytest.mark.once
def test_text_is_read_twice_before_the_first_step(texts, tmp_path, monkeypatch, capsys):
    from keras_spanbert.data import corpus

    read, read_documents = [], corpus.read_documents

    def count(path, *args):
        read.append(path)
        return read_documents(path, *args)

    class StoppedError(Exception):
        pass

    def stop(*args, **kwargs):
        raise StoppedError

    monkeypatch.setattr(corpus, "read_documents", count)
    monkeypatch.setattr(ks.SpanBertPretrainer, "fit", stop)
    with pytest.raises(StoppedError):
        in_process(f"--train_data={texts}", f"--output={tmp_path / 'run'}", *TINY)
    assert len(read) == 2 * len(set(read)) == 2 * 20


@pytest.mark.once("torch")
def test_run_shows_and_writes_what_its_objectives_are(texts, tmp_path, capsys):
    output = tmp_path / "run"
    flags = [f"--train_data={texts}", "--eval_steps=2", "--eval_every=2", *TINY]
    in_process(*flags, f"--output={output}", "--steps=2", "--objectives=mlm,nsp")
    out = capsys.readouterr().out
    assert re.search(r"held-out MLM \S+ nats a token  NSP \S+ nats a row", out)
    assert re.search(r"held-out NSP cross-entropy \S+ nats a pair, .* a coin's 0\.693; acc", out)
    assert "SBO" not in out
    metrics = json.loads((output / "metrics.json").read_text())
    assert {n for n in metrics if n.startswith(("mlm_", "sbo_", "nsp_"))} == {
        f"{head}_{name}"
        for head in ["mlm", "nsp"]
        for name in ["cross_entropy", "accuracy", "unigram_entropy"]
    }
    assert metrics["nsp_unigram_entropy"] == pytest.approx(np.log(2))
    (row,) = read_history(output)
    assert float(row["val_nsp_accuracy"]) == pytest.approx(metrics["nsp_accuracy"])
    assert row["nsp_cross_entropy"] and not any("sbo" in name for name in row)
    assert (output / "loss.png").stat().st_size
    # A run from the preset has its objectives, unless it is told others.
    for more, objectives in [([], ["mlm", "nsp"]), (["--objectives=mlm"], ["mlm"])]:
        other = tmp_path / "-".join(objectives)
        given = [flag for flag in flags if "--size" not in flag and "--vocabulary" not in flag]
        in_process(*given, f"--output={other}", f"--preset={output}", "--steps=2", *more)
        assert json.loads((other / "run.json").read_text())["flags"]["objectives"] == objectives
        model = ks.SpanBertPretrainer.from_preset(other)
        assert model.objectives == tuple(objectives)
        model.check_preprocessor()


# === Mistakes ===


@pytest.fixture
def mistake(texts, tmp_path, capsys, monkeypatch):
    """Runs train.py with flags and checks that it names the offending values.

    And that it leaves no output, so that the corrected command may use it.
    """
    monkeypatch.chdir(tmp_path)

    def check(arguments, *values, data=texts):
        flags = {"--steps": "1", "--output": str(tmp_path / "output"), "--train_data": data}
        flags.update(flag.split("=", 1) for flag in TINY)
        given = {argument.split("=", 1)[0] for argument in arguments}
        if "--epochs" in given:
            flags.pop("--steps")
        if "--preset" in given:
            flags.pop("--size"), flags.pop("--vocabulary_size")
        defaults = [f"{k}={v}" for k, v in flags.items() if k not in given]
        with pytest.raises(SystemExit) as error:
            in_process(*defaults, *arguments)
        check_mistake(error.value.code, capsys.readouterr().err, *values)
        assert not (tmp_path / "output").exists()

    return check


@pytest.mark.once
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--size=huge", "huge"),
        ("--held_out=-0.25", "-0.25"),
        ("--sequence_length=-5", "-5"),
        ("--warmup_steps=7", "warmup_steps=7"),
        ("--batch_size=0", "batch_size"),
        ("--steps=many", "many"),
        ("--steps=0", "0"),
        ("--scheme=words", "words"),
        ("--document_boundary=page", "page"),
        ("--no_such_flag=7", "no_such_flag"),
        ("stray", "stray"),
    ],
)
def test_mistake_in_a_flag_gives_one_line_that_names_it(mistake, argument, value):
    mistake([argument], value)


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--objectives=mlm,next"], "--objectives=mlm,next"),
        (["--objectives=sbo"], "must be mlm, and sbo or nsp or both behind it"),
        (["--nsp_weight=2"], "`--nsp_weight` must be left out without --objectives=mlm,nsp"),
        (["--objectives=mlm", "--sbo_weight=2"], "`--sbo_weight` must be left out without"),
        (["--objectives=mlm,nsp", "--cross_documents"], "`--cross_documents` must be left out"),
        (["--objectives=mlm,nsp", "--batch_size=1"], "`--batch_size` must be 2 or more"),
        (["--objectives=mlm,nsp", "--sequence_length=4"], "--sequence_length=4"),
    ],
)
def test_mistake_in_objectives_gives_one_line_that_names_it(mistake, arguments, value):
    mistake(arguments, value)


@pytest.mark.once
def test_mistake_of_a_warm_up_longer_than_the_epochs_is_told_before_training(mistake, monkeypatch):
    from keras_spanbert.runs import examples

    monkeypatch.setattr(examples, "choose_blanks", None)  # Is not reached.
    mistake(["--epochs=1", "--warmup_steps=900"], "`--warmup_steps` must be at most the", "=900")


@pytest.mark.once
@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", ["a.txt", "empty"]),
        (b" \n\n", ["a.txt", "blank"]),
        (b"caf\xe9", ["a.txt", "UTF-8", "at byte 3", "--encoding_errors=replace"]),
        (b"a\x00b", ["a.txt", "binary", "zero byte at byte 1", "tr -d"]),
        ("text".encode("utf-16"), ["a.txt", "iconv -f UTF-16"]),
        (b"\x1f\x8b\x08\x00 cut", ["a.txt"]),
        (b"one document", ["1 document", "--eval_data", "--document_boundary=blank_line or line"]),
    ],
)
def test_mistake_in_a_text_file_names_it(mistake, tmp_path, content, values):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    mistake([], *values, data=str(path))


@pytest.mark.once
@pytest.mark.parametrize(
    ("flag", "content", "hint", "not_hint"),
    [
        ("--document_boundary=blank_line", b"one", "--document_boundary=line", "blank_line or"),
        ("--document_boundary=line", b"one", "--eval_data", "--document_boundary"),
        ("--encoding_errors=replace", b"a\x00b", "tr -d", "--encoding_errors"),
        ("--encoding_errors=replace", "text".encode("utf-16"), "iconv", "--encoding_errors"),
    ],
)
def test_hint_never_names_what_is_used_already(tmp_path, capsys, flag, content, hint, not_hint):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as error:
        in_process(f"--train_data={path}", f"--output={tmp_path / 'output'}", flag)
    err = capsys.readouterr().err
    check_mistake(error.value.code, err, hint)
    assert not_hint not in err


@pytest.mark.once
@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--sequence_length=4", "--sequence_length=4 must be 5 or more"),
        ("--mask_rate=1", "--mask_rate=1.0 must be smaller"),
        ("--sbo_weight=0", None),  # Nobody asks for it.
    ],
)
def test_training_without_targets_of_sbo_says_which_flag_gives_some(
    texts, tmp_path, monkeypatch, capsys, flag, hint
):
    class StoppedError(Exception):
        pass

    def stop(*args, **kwargs):
        raise StoppedError

    monkeypatch.setattr("keras_spanbert.runs.examples.choose_blanks", stop)
    flags = ["--sequence_length=4", flag] if hint is None else [flag]
    with pytest.raises(StoppedError):
        in_process(
            f"--train_data={texts}",
            f"--output={tmp_path / 'run'}",
            "--vocabulary_size=200",
            "--batch_size=8",
            *flags,
        )
    out = capsys.readouterr().out
    assert f"SBO learns nothing: {hint}" in out if hint else "Warning" not in out


@pytest.mark.once
def test_mistake_of_a_folder_for_a_text_file_names_it(mistake, tmp_path):
    (tmp_path / "folder").mkdir()
    mistake([f"--train_data={tmp_path / 'folder'}"], "folder")


@pytest.mark.once
def test_mistake_of_training_text_too_short_says_so(mistake, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("short")
    mistake([f"--train_data={tmp_path}/*.txt"], "min_block_tokens")


@pytest.mark.once
def test_mistake_of_evaluation_text_too_short_says_so(mistake, tmp_path):
    (tmp_path / "a.txt").write_text("too short")
    mistake([f"--eval_data={tmp_path / 'a.txt'}"], "min_block_tokens")


@pytest.mark.once
def test_mistake_of_an_output_in_use_leaves_it_untouched(mistake, tmp_path):
    output = tmp_path / "mine"
    output.mkdir()
    (output / "thesis.tex").write_text("years of work")
    mistake([f"--output={output}"], output)
    assert [path.name for path in output.iterdir()] == ["thesis.tex"]
    assert (output / "thesis.tex").read_text() == "years of work"
    mistake([f"--output={output / 'thesis.tex'}"], "thesis.tex")


@pytest.mark.once
@pytest.mark.parametrize(
    ("tokens", "value"),
    [
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "apple", "plum"], "[MASK]"),
        ([*SPECIAL_TOKENS, "apple", "plum", "apple"], "apple"),
    ],
)
def test_mistake_in_a_vocabulary_names_the_token(mistake, tmp_path, tokens, value):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(tokens))
    mistake([f"--vocabulary={path}"], "`--vocabulary`", path, value)


@pytest.mark.once
def test_mistake_of_a_vocabulary_smaller_than_the_presets_names_both(mistake, trained, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, "apple"]))
    size = len(ks.SpanBertTokenizer.from_preset(str(trained[0])).get_vocabulary())
    mistake([f"--preset={trained[0]}", f"--vocabulary={path}"], path, "6 tokens", size)


@pytest.mark.once
def test_mistake_of_a_block_longer_than_the_presets_names_both(mistake, trained):
    mistake([f"--preset={trained[0]}", "--sequence_length=17"], "17", "16")


@pytest.mark.once
@pytest.mark.parametrize("flag", ["--size=mini", "--dropout=0.1", "--lowercase=true"])
def test_mistake_of_a_new_models_flag_with_a_preset_names_both(mistake, trained, flag):
    mistake([f"--preset={trained[0]}", flag], flag.split("=")[0], f"--preset={trained[0]}")


@pytest.mark.once
def test_mistake_of_a_folder_without_a_preset_names_it(mistake, tmp_path):
    (tmp_path / "empty").mkdir()
    mistake([f"--preset={tmp_path / 'empty'}"], "empty")


@pytest.mark.once
def test_mistake_of_a_batch_larger_than_the_data_names_both(mistake):
    mistake(["--batch_size=1000000000"], "--batch_size", "rows", "batch_size=1000000000")


@pytest.mark.once
def test_script_ends_on_a_mistake_with_one_line_and_code_2(texts, tmp_path):
    code, out, err = run(
        f"--train_data={texts}", f"--output={tmp_path / 'o'}", "--size=huge", popen=subprocess.Popen
    )
    check_mistake(code, err, "huge")


@pytest.mark.once
@pytest.mark.parametrize(
    ("flags", "code"), [(["--help"], 0), (["--size=huge"], 2), (["--mask_rate=2"], 2)]
)
def test_help_and_mistakes_load_no_backend(flags, code):
    program = (
        "import sys\nfrom train import train as main\n"
        f"sys.argv = ['train.py', *{flags}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    assert not {'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)\n"
        "    raise\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr


@pytest.mark.once
def test_help_lists_flags(capsys):
    with pytest.raises(SystemExit) as error:
        parse_flags(["train.py", "--help"])
    assert error.value.code == 0
    out = capsys.readouterr().out
    assert "--train_data" in out.replace("--[no]", "--") and "--mask_rate" in out
