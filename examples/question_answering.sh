# Question answering: answers from a text. Run it from the root of a clone.

# %% ask
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --predict_data=examples/data/story.txt --question="What had Tom lost?"

# %% data
head -n 6 examples/data/repairs_train.json

# %% before
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --eval_data=examples/data/repairs_dev.json

# %% train
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --train_data=examples/data/repairs_train.json --eval_data=examples/data/repairs_dev.json \
  --epochs=3 --batch_size=6 --learning_rate=1e-4 --output=saved_models/repairs

# %% predict
python train.py --task=question_answering --preset=saved_models/repairs \
  --predict_data=examples/data/repairs_dev.json --predictions=answers.json
cat answers.json
