# Serving: a SavedModel that takes strings. Run it from the root of a clone.

# %% export
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --export=out/served/answers
ls out/served/answers/1

# %% server
python examples/rest_server.py answers out/served/answers > /dev/null 2>&1 &
until curl -s localhost:8501/v1/models/answers > /dev/null; do sleep 1; done
curl -s localhost:8501/v1/models/answers:predict \
  -d '{"instances": [{"question": "Who wrote it?", "context": "Bob wrote the letter."}]}'
kill $!
