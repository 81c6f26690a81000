"""Coreference in a spaCy pipeline. Run it from the root of a clone."""

# %% pipeline
import spacy

nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")  # Or a parser, or a senter.
config = {"preset": "saved_models/coreference-litbank", "dtype": "float32"}
nlp.add_pipe("spanbert_coreference", config=config)
doc = nlp(
    "Anna met her brother Tom at the station in Leeds. "
    "He had lost his coat, and she gave him hers. "
    "The train to York left at noon. An old sailor sat by the window and told them about his ship."
)
for cluster in doc._.coref_clusters:
    if len(cluster) > 1:
        print(cluster)
print([(span.text, span.start) for span in doc.spans["coref_clusters_1"]])
nlp.to_disk("out/pipeline")
