# Question answering: answers from a text. Run it from the root of a clone.

# %% ask
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --predict_data=examples/data/story.txt --question="What had Tom lost?"

# %% data
head -n 4 examples/data/repairs_train.json

# %% train
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --train_data=examples/data/repairs_train.json --eval_data=examples/data/repairs_dev.json \
  --epochs=3 --batch_size=6 --learning_rate=1e-4 --output=out/repairs

# %% predict
python train.py --task=question_answering --preset=out/repairs \
  --predict_data=examples/data/repairs_dev.json --predictions=out/answers.json
head -n 3 out/answers.json
