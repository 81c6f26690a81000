"""Coreference in a spaCy pipeline. Run it from the root of a clone."""

# %% pipeline
import spacy

nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")  # Or a parser, or a senter.
config = {"preset": "saved_models/coreference-litbank", "dtype": "float32"}
nlp.add_pipe("spanbert_coreference", config=config)
doc = nlp("Anna met her brother Tom at the station. He had lost his coat, and she gave him hers.")
for cluster in doc._.coref_clusters:
    print(cluster)
print(doc.spans["coref_clusters_1"])
nlp.to_disk("pipeline")
