"""The FLOPs of a step. Run it from the root of a clone."""

# %% flops
import keras_spanbert as ks
from keras_spanbert.runs.cost import step_flops

backbone = ks.SpanBertBackbone(
    vocabulary_size=28996, dtype="mixed_bfloat16", **ks.SpanBertBackbone.SIZES["tiny"]
)
flops = step_flops(
    ks.SpanBertPretrainer(backbone), batch_size=16, sequence_length=512, num_predictions=80
)
print(f"{flops / 1e9:.1f} GFLOP per step, {1e3 * flops / 197e12:.2f} ms at least on a TPU v5e")
