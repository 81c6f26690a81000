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

# %% marks
masking = ks.SpanMasking(
    vocabulary_size=100, mask_token_id=4, special_token_ids=(0, 2, 3, 4), scheme="entity"
)
masks = masking(
    [[2, 51, 52, 53, 54, 55, 56, 57, 3, 0]],
    span_marks=[[0, 0, 1, 2, 0, 0, 1, 0, 0, 0]],
    seed=4,
)
print([int(i) for i in masks["token_ids"][0]])

# %% annotate
import spacy

nlp = spacy.blank("en")
nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Anna"}])
corpus = ks.Corpus("examples/data/story.txt", document_boundary="line")
ks.data.linguistic_spans.write(corpus, "names.jsonl", nlp)
with open("names.jsonl") as file:
    print(file.readline().strip())
