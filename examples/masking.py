"""Masking schemes. Run it from the root of a clone."""

# %% compare
import keras_spanbert as ks

tokenizer = ks.SpanBertPretrainerPreprocessor.from_preset("saved_models/encoder-english").tokenizer
text = "The harbormaster repainted his weatherbeaten house near the lighthouse in the autumn."
ids = [tokenizer.cls_token_id, *tokenizer(text), tokenizer.sep_token_id]
for scheme in ["span", "whole_word", "subword"]:
    masking = ks.SpanMasking.from_tokenizer(tokenizer, scheme=scheme, mask_rate=0.3)
    masked = masking([ids], seed=18)["token_ids"][0]
    print(f"{scheme:10}", " ".join(tokenizer.id_to_token(int(i)) for i in masked[1:-1]))

# %% outputs
masks = ks.SpanMasking.from_tokenizer(tokenizer)([ids], seed=18)
for name in ["mask_positions", "mask_ids", "span_left", "span_right", "span_offsets"]:
    print(f"{name:14}", [int(i) for i in masks[name][0]])

# %% annotate
import pathlib

import spacy

nlp = spacy.blank("en")
nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Anna"}])
corpus = ks.Corpus("examples/data/story.txt", document_boundary="line")
pathlib.Path("out").mkdir(exist_ok=True)
ks.data.linguistic_spans.write(corpus, "out/names.jsonl", nlp)
print(open("out/names.jsonl").readline().strip())
