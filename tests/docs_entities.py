"""Small files of tagged words with the names used in docs/."""

import keras_spanbert as ks

SENTENCES = [
    ("Ann wrote the letter in United States .", "B-person O O O O B-location I-location O"),
    ("Bob read it .", "B-person O O O"),
    ("then Joe Kim found the map .", "O B-person I-person O O O O"),
]


def write_all(root, backbone, tokenizer):
    """Writes the files of WNUT, a text, and a preset with the same labels."""
    rows = "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words.split(), tags.split()))
        for words, tags in SENTENCES * 3
    )
    for name in ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]:
        (root / name).write_text(rows)
    (root / "tweets.txt").write_text("".join(f"{words}\n" for words, _ in SENTENCES))
    labels = ks.data.conll.tag_names(ks.data.conll.read(root / "wnut17train.conll"))
    preprocessor = ks.SpanBertTokenClassifierPreprocessor(tokenizer, 64)
    tagger = ks.SpanBertTokenClassifier(backbone, labels, preprocessor)
    tagger.save_to_preset(root / "saved_models" / "entities")
