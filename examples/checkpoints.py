"""Models of other libraries. Run it from the root of a clone."""

# %% read
import keras_spanbert as ks

pretrainer = ks.SpanBertPretrainer.from_preset("saved_models/encoder-english", dtype="float32")
ks.checkpoints.to_huggingface(pretrainer, "english_bert_2")
again = ks.SpanBertPretrainer.from_preset("english_bert_2")  # Or "hf://owner/name".
print([x["text"] for x in again.fill("He put his [MASK] in his pocket.", top_k=3)[0]])

# %% transformers
import torch
import transformers

model = transformers.BertForMaskedLM.from_pretrained("english_bert_2")
tokenizer = transformers.AutoTokenizer.from_pretrained("english_bert_2")
inputs = tokenizer("He put his [MASK] in his pocket.", return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).logits
(position,) = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0]
best = logits[0, position].topk(3).indices
print([tokenizer.decode(int(i)) for i in best])
