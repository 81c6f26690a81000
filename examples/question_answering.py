"""Question answering in Python. Run it from the root of a clone."""

# %% answer
import keras_spanbert as ks

answerer = ks.SpanBertQuestionAnswerer.from_preset(
    "saved_models/question-answering-squad", dtype="float32"
)
context = "The bridge was opened in 1894. It took eight years to build, and Ida Moss designed it."
for found in answerer.answer("Who designed the bridge?", context, top_k=2):
    print(f"{found['answer']!r}  score {found['score']:.2f}  {found['start']} to {found['end']}")

# %% batch
questions = ["When was the bridge opened?", "How long did it take to build?"]
for question, answers in zip(questions, answerer.answer(questions, [context] * 2)):
    print(question, answers[0]["answer"])

# %% evaluate
dev = ks.data.squad.read("examples/data/repairs_dev.json", for_training=False)
scores = answerer.evaluate_squad(dev)
print({name: round(scores[name], 1) for name in ["exact", "f1"]})

# %% fit
train = ks.data.squad.read("examples/data/repairs_train.json")
answerer.compile(ks.AdamW(5e-5))
columns = {"question": train.questions, "context": train.contexts}
answerer.fit(columns, train.answers, batch_size=6, epochs=3, verbose=0)
scores = answerer.evaluate_squad(dev)
print({name: round(scores[name], 1) for name in ["exact", "f1"]})
answerer.save_to_preset("my_answerer")

# %% metric
dataset = {
    "data": [
        {
            "paragraphs": [
                {"qas": [{"id": "1", "answers": [{"text": "eight years", "answer_start": 39}]}]}
            ]
        }
    ]
}
scores = ks.metrics.squad(dataset, {"1": "about eight years"})
print({name: round(scores[name], 1) for name in ["exact", "f1"]})

# %% rows
import json

row = {"id": 1, "question": "谁写了这封信？", "context": "鲍勃写了这封信。"}
row["answers"] = {"text": ["鲍勃"], "answer_start": [0]}
with open("letters.json", "w", encoding="utf-8") as file:
    json.dump([row], file)
print(ks.data.squad.read("letters.json").answers)
