"""Writes a quantized preset. The quantized presets in saved_models/ were made with it.

    python benchmarks/quantize_preset.py saved_models/squad saved_models/question-answering-squad
    python benchmarks/quantize_preset.py --mode=int4 saved_models/tags saved_models/entities-litbank

int8 stores the weights of dense layers and embeddings in 8 bits with a scale per channel, and int4
in 4 bits with a scale for each block of 32 weights. mixed stores the token embedding as int4 and
the other layers as int8. `from_preset(preset, dtype="float32")` and `train.py --preset=` make float
models of them. To measure the loss of accuracy, evaluate both presets with train.py, for example
with `--task=coreference --preset=PRESET --eval_data='litbank/test/*.conll'`.
"""

import argparse
import os
import sys
import warnings

import keras

from keras_spanbert import api
from keras_spanbert.models.source import open_source

INT4 = keras.quantizers.Int4QuantizationConfig(block_size=32)
INT8 = keras.quantizers.Int8QuantizationConfig()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--mode", choices=["int4", "int8", "mixed"], default="mixed")
    parser.add_argument("--dropout", type=float, help="of the new preset; default: as in SOURCE")
    args = parser.parse_args()
    if os.path.exists(os.path.join(args.target, "config.json")):
        sys.exit(f"The target must not contain a preset. Received: {args.target}")
    rates = {}
    if args.dropout is not None:
        rates = {"dropout": args.dropout, "attention_dropout": args.dropout}
    # An encoder without a task becomes a pretrainer, which stores its tokenizer too.
    task = open_source(args.source).task or api.SpanBertPretrainer
    model = task.from_preset(args.source, dtype="float32", **rates)
    warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
    embedding = model.backbone.token_embedding
    if args.mode == "mixed":
        model.quantize(config=INT8, filters=lambda layer: layer is not embedding)
        embedding.quantize(config=INT4)
    else:
        model.quantize(config=INT4 if args.mode == "int4" else INT8)
    model.save_to_preset(args.target)
    total = sum(entry.stat().st_size for entry in os.scandir(args.target) if entry.is_file())
    print(f"Wrote {args.target}, {total / 1e6:.1f} MB without the vocabulary")


if __name__ == "__main__":
    main()
