"""Question answering in Python. Run it from the root of a clone."""

# %% answer
import keras_spanbert as ks

answerer = ks.SpanBertQuestionAnswerer.from_preset(
    "saved_models/question-answering-squad", dtype="float32"
)
context = "The bridge was opened in 1894. It took eight years to build, and Ida Moss designed it."
for found in answerer.answer("Who designed the bridge?", context, top_k=2):
    print(f"{found['answer']!r}  score {found['score']:.2f}  {found['start']} to {found['end']}")

# %% fit
train = ks.data.squad.read("examples/data/repairs_train.json")
dev = ks.data.squad.read("examples/data/repairs_dev.json", for_training=False)
print(f"F1 {answerer.evaluate_squad(dev)['f1']:.1f} before training")
answerer.compile(ks.AdamW(5e-5))
columns = {"question": train.questions, "context": train.contexts}
answerer.fit(columns, train.answers, batch_size=6, epochs=3, verbose=0)
print(f"F1 {answerer.evaluate_squad(dev)['f1']:.1f} after training")
answerer.save_to_preset("out/my_answerer")
