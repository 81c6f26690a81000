"""Models of other libraries. Run it from the root of a clone."""

# %% read
import keras_spanbert as ks

pretrainer = ks.SpanBertPretrainer.from_preset("saved_models/encoder-english", dtype="float32")
ks.checkpoints.to_huggingface(pretrainer, "out/python_bert")
again = ks.SpanBertPretrainer.from_preset("out/python_bert")  # Or "hf://owner/name".
print([x["text"] for x in again.fill("He put his [MASK] in his pocket.", top_k=3)[0]])

# %% transformers
import torch
import transformers

model = transformers.BertForMaskedLM.from_pretrained("out/python_bert")
tokenizer = transformers.AutoTokenizer.from_pretrained("out/python_bert")
inputs = tokenizer("He put his [MASK] in his pocket.", return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).logits
(position,) = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0]
best = logits[0, position].topk(3).indices
print([tokenizer.decode(int(i)) for i in best])
