"""A resolver with random weights that returns fixed clusters, for tests that show clusters."""

import re

import keras_spanbert as ks

# Lower-case words of each cluster. "her book" contains another mention.
CLUSTERS = [("ann", "she", "her"), ("bob", "he", "him", "his"), ("her book", "it")]
WORDS = "ann bob she he him his her it sold read book came left the . , [PAD]".split()


def save(folder) -> None:
    """Writes the preset of a small resolver."""
    tokenizer = ks.SpanBertTokenizer(["[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)
    backbone = ks.SpanBertBackbone(len(tokenizer.get_vocabulary()), 1, 2, 8, 16, dropout=0.0)
    preprocessor = ks.SpanBertCoreferenceResolverPreprocessor(tokenizer, sequence_length=16)
    resolver = ks.SpanBertCoreferenceResolver(
        backbone, preprocessor, max_segment_len=16, ffnn_size=8, feature_size=4
    )
    resolver.save_to_preset(folder)


def resolve(self, texts, speakers=None, genre=None):
    """Replaces `SpanBertCoreferenceResolver.resolve` for strings and words."""
    return [
        {"clusters": clusters_in_text(x) if isinstance(x, str) else clusters_in_words(x)}
        for x in texts
    ]


def clusters_in_text(text):
    found = [
        [
            {"text": match.group(), "start": match.start(), "end": match.end()}
            for match in re.finditer(rf"\b(?:{'|'.join(words)})\b", text, re.IGNORECASE)
        ]
        for words in CLUSTERS
    ]
    return [mentions for mentions in found if mentions]


def clusters_in_words(sentences):
    """Spans are in words. Ends are exclusive."""
    words = [word for sentence in sentences for word in sentence]
    text = " ".join(words)
    return [
        [
            {
                "text": mention["text"],
                "start": len(text[: mention["start"]].split()),
                "end": len(text[: mention["end"]].split()),
            }
            for mention in mentions
        ]
        for mentions in clusters_in_text(text)
    ]
