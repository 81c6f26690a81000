"""What a pretrained model fills blanks with."""

import re

import numpy as np


def fill_examples(pretrainer, texts, num_examples=4, seed=0):
    """Blanks two words in sentences of texts and has the model fill them.

    Args:
        pretrainer: `SpanBertPretrainer` with a preprocessor.
        texts: iterable of strings.
        num_examples: int.
        seed: int.

    Returns:
        List of `(text with blanks, true words, candidates)`.
    """
    tokenizer = pretrainer.preprocessor.tokenizer
    most_tokens = pretrainer.preprocessor.sequence_length - 2
    generator = np.random.default_rng(seed)
    examples = []
    for text in texts:
        sentences = re.findall(r"[A-Z][^.!?\n]{40,200}[.!?]", text)
        for i in generator.permutation(len(sentences))[:1]:
            words = sentences[i].split()
            if len(words) < 5:
                continue  # Nothing would be left around the blank.
            start = int(generator.integers(1, len(words) - 3))
            truth = " ".join(words[start : start + 2]).rstrip(",;:.")
            num_masks = len(tokenizer(truth))
            blank = " ".join(["[MASK]"] * num_masks)
            text = " ".join([*words[:start], blank, *words[start + 2 :]])
            if num_masks and len(tokenizer(sentences[i])) <= most_tokens:
                examples.append((text, truth))
        if len(examples) == num_examples:
            break
    filled = pretrainer.fill([text for text, _ in examples], top_k=3)
    return [(text, truth, blanks[0]) for (text, truth), blanks in zip(examples, filled)]
