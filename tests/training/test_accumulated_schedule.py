"""With accumulated gradients, the learning rate still ends at the last batch."""

import pytest
from train_script import run_in_process

from keras_spanbert.recipes import fit


@pytest.mark.once("torch")
@pytest.mark.usefixtures("one_layer", "untraced")
def test_schedule_of_a_run_counts_batches(texts, tmp_path, monkeypatch):
    optimizers = []
    make = fit._optimizer
    monkeypatch.setattr(
        fit, "_optimizer", lambda *args: optimizers.append(make(*args)) or optimizers[-1]
    )
    run_in_process(
        f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--steps=6", "--batch_size=4",
        "--gradient_accumulation=3", "--sequence_length=16", "--vocabulary_size=200",
        "--held_out=0.2", "--eval_steps=1", "--learning_rate=0.6", "--warmup_steps=0",
    )  # fmt: skip
    (optimizer,) = optimizers
    # Two updates, in the third and the sixth batch. The rate is 0 after the last of six batches.
    assert optimizer.iterations == 2
    rates = [float(optimizer._learning_rate(batch)) for batch in [2, 5, 6]]
    assert rates == pytest.approx([0.6 * 4 / 7, 0.6 / 7, 0.0], abs=1e-6)
