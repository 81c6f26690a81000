#!/usr/bin/env bash
# What to do with one GPU for 15 minutes, the most important first, each part with its own limit.
#
#   TEXTS=texts PRESET=minilm bash benchmarks/gpu_session.sh OUT [PARTS]
#   bash benchmarks/gpu_session.sh OUT --tiny [PARTS]     # tries it out on a CPU, at tiny size
#
# TEXTS is the folder that benchmarks/evidence_texts.py writes, PRESET a folder with MiniLM. PARTS
# are some of 1234 (default: all). OUT gets logs, tables and weights as they come, and commands.txt.
set -u
out=$1 parts=${2:-1234}
mkdir -p "$out"; out=$(realpath "$out"); cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD TF_CPP_MIN_LOG_LEVEL=3 XLA_PYTHON_CLIENT_PREALLOCATE=false

gpu=(python benchmarks/gpu.py) tests=(python -m tests --gpu) size=(--size=small) processes=6
long=(--sequence_length=512 --batch_size=64 --dtype=mixed_bfloat16 --attention_dropout=0 --dropout=0)
answers=(--batch_size=16 --sequence_length=256 --doc_stride=160 --epochs=1)
squad=(--batch_size=32 --sequence_length=384 --doc_stride=128 --epochs=2)
seeds=3 steps=${STEPS:-6000} scratch_steps=${SCRATCH_STEPS:-4000} limits=(120 180 240 300)
if [ "$parts" = --tiny ]; then
  parts=${3:-1234} seeds=2 steps=4 scratch_steps=4 processes=1 limits=(600 1200 1200 1200)
  PRESET=saved_models/encoder-english TEXTS=$out/texts
  VOCABULARY=$(find $PRESET -name vocabulary.txt)
  mkdir -p "$TEXTS"/{novels,sotu,wiki}
  for name in novels sotu wiki; do cp examples/data/lighthouse.txt "$TEXTS/$name/$name.txt"; done
  gzip -kf "$TEXTS/novels/novels.txt"
  cp examples/data/repairs_train.json "$TEXTS/squad-5000.json"
  cp examples/data/repairs_train.json "$TEXTS/train-v1.1.json"
  cp examples/data/repairs_dev.json "$TEXTS/squad-dev-quarter.json"
  cp examples/data/repairs_dev.json "$TEXTS/dev-v1.1.json"
  gpu+=(--size=tiny --length=16 --batch_size=1 --steps=1 --device=cpu) size=(--size=tiny)
  tests=(python -m pytest -q tests/gpu)
  long=(--sequence_length=64 --batch_size=2)
  answers=(--batch_size=4 --sequence_length=64 --doc_stride=30 --max_question_length=20 --steps=2)
  squad=("${answers[@]}")
fi
export PRESET TEXTS OUT=$out VOCABULARY=${VOCABULARY:-$PRESET/vocab.txt}
texts="--train_data=$TEXTS/novels/*.txt.gz,$TEXTS/sotu/*.txt,$TEXTS/wiki/*.txt"

# run NAME COMMAND...: until the end of the part, with the output in NAME.log.
run() {
  local name=$1 left=$((ends - SECONDS)); shift
  echo "$(printf '%q ' "$@")" >> "$out/commands.txt"
  [ "$left" -gt 0 ] || { echo "$name: no time left"; return 1; }
  timeout --kill-after=10 "$left" "$@" > "$out/$name.log" 2>&1
  local code=$?
  echo "$name: exit code $code after $((SECONDS - begun)) s of part $part"
}
# A plan whose runs several processes divide. It is written with JSON's quotes around each flag.
compare() {
  local name=$1; shift
  for i in $(seq $processes); do
    run "$name-$i" python benchmarks/compare.py "$out/$name.json" "$out/$name" "$@" & sleep 0.5
  done; wait
  tail -n 12 "$out/$name-1.log"
}
quoted() { local joined; joined=$(printf '"%s", ' "$@"); echo "${joined%, }"; }
bring_back() { tar --exclude=checkpoints -C "$out" -c "$1" | split -b 15M - "$out/$1.tar."; }

for part in $(echo "$parts" | fold -w1); do
  begun=$SECONDS ends=$((SECONDS + ${limits[part - 1]}))
  case $part in
  1) run tests "${tests[@]}" ;;
  2) # Larger, coreference, padding masks, the peers and JAX with dropout, the mechanisms on PyTorch.
    for case in "4" "5" "3" "2 --library=keras_hub/torch" "2 --library=jax" "7"; do
      run "gpu-$(echo "$case" | tr -c 'a-z0-9\n' -)" "${gpu[@]}" --part $case &
      [ $processes -gt 1 ] || wait
    done; wait
    cat "$out"/gpu-*.log | tee "$out/gpu.txt" ;;
  3) # The encoder with all bits of its weights, and what storing fewer costs.
    KERAS_BACKEND=${BACKEND:-jax} run encoder python train.py --preset="$PRESET" "$texts" \
      --held_out=0.02 --steps="$steps" --learning_rate=4e-4 --eval_every="$steps" --eval_steps=10 \
      "${long[@]}" --output="$out/encoder"
    bring_back encoder
    for mode in int8 int4; do
      KERAS_BACKEND=torch run "$mode" python benchmarks/quantize_preset.py --mode=$mode \
        --dropout=0.1 "$out/encoder" "$out/encoder-$mode" &
    done; wait
    cat > "$out/stored.json" << END
{"train": ["--task=question_answering", "--train_data=\$TEXTS/squad-5000.json",
           "--learning_rate=2e-4", $(quoted "${answers[@]}")],
 "test": ["--task=question_answering", "--eval_data=\$TEXTS/squad-dev-quarter.json"],
 "rows": {"MiniLM": ["--preset=\$PRESET"],
          "float32": ["--preset=\$OUT/encoder", "--dropout=0.1", "--attention_dropout=0.1"],
          "int8": ["--preset=\$OUT/encoder-int8"], "int4": ["--preset=\$OUT/encoder-int4"]}}
END
    KERAS_BACKEND=torch compare stored --num_seeds=$seeds
    bring_back encoder-int8 ;;
  4) # From random weights: subwords against spans with SBO.
    cat > "$out/scratch.json" << END
{"pretrain": ["$texts", "--held_out=0.02", "--vocabulary=\$VOCABULARY", "--lowercase",
              "--learning_rate=5e-4", "--steps=$scratch_steps", "--eval_every=$scratch_steps",
              "--eval_steps=10", $(quoted "${size[@]}" "${long[@]}")],
 "rows": {"MLM, subwords": ["--masking_scheme=subword", "--mask_replacement=token",
                            "--objectives=mlm"],
          "MLM + SBO, spans": ["--masking_scheme=span", "--objectives=mlm,sbo"]},
 "fine_tunings": {"squad": {
    "train": ["--task=question_answering", "--train_data=\$TEXTS/train-v1.1.json",
              "--learning_rate=1e-4", $(quoted "${squad[@]}")],
    "test": ["--task=question_answering", "--eval_data=\$TEXTS/dev-v1.1.json"]}}}
END
    KERAS_BACKEND=${BACKEND:-jax} compare scratch --num_seeds=1 ;;
  esac
done
ls -l "$out"
