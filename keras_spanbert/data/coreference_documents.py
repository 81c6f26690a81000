"""The format of a document with coreference, and its check."""

import itertools

from keras_spanbert.checks import is_integer
from keras_spanbert.data.examples import check, field

# Optional keys with clusters.
_CLUSTERS = ("clusters", "predicted_clusters")


def check_document(document: dict, place: str = "document") -> int:
    """Checks the format of a document: see `keras_spanbert.data.coreference.read`.

    Args:
        document: dict.
        place: string. Prefix of error messages. Defaults to `"document"`.

    Returns:
        int. The number of its tokens.

    Raises:
        ValueError: if a key is missing or its value malformed, `speakers`, `sentence_map` or
            `subtoken_map` differs from the text in length, or a mention is not in the text.

    Example:
    ```python
    document = {"doc_key": "nw", "sentences": [["She", "sang"]], "clusters": [[[0, 0]]]}
    keras_spanbert.data.coreference.check_document(document)
    ```
    """
    is_dict = isinstance(document, dict)
    check(is_dict, place, "a document must be a dict with `sentences`", document)
    field(document, "doc_key", place, str)
    wanted = _lengths(document, "sentences", place)
    lengths = _lengths(document, "speakers", place) if "speakers" in document else wanted
    pairs = itertools.zip_longest(lengths, wanted, fillvalue="no list")
    rule = "`speakers` must be as long as `sentences`, list by list"
    for i, (length, other) in enumerate(pairs):
        check(length == other, place, rule, other, f"speakers[{i}] of {length} for ")
    size = sum(wanted)
    for name in ["sentence_map", "subtoken_map"]:
        if name in document:
            values = field(document, name, place, list)
            is_right = len(values) == size and all(map(is_integer, values))
            rule = f"`{name}` must be one integer per token, {size} in total"
            check(is_right, place, rule, values, f"{len(values)}, ")
    for name in _CLUSTERS:
        if name in document:
            _check_clusters(field(document, name, place, list), name, size, place)
    return size


def with_speakers(document: dict) -> dict:
    """Returns a document with a speaker for each word. The speakers of words may be by sentence."""
    names, sentences = document.get("speakers"), document.get("sentences")
    are_strings = isinstance(names, list) and all(isinstance(x, str) for x in names)
    are_lists = isinstance(sentences, list) and all(isinstance(x, list) for x in sentences)
    fits = are_strings and are_lists and len(names) == len(sentences)
    if not fits or has_subtokens(document):
        return document
    pairs = zip(names, sentences)
    return {**document, "speakers": [[name] * len(sentence) for name, sentence in pairs]}


def has_subtokens(document: dict) -> bool:
    """Returns whether a document is in subtokens and segments, as in the released scripts."""
    return "sentence_map" in document


def check_has_clusters(documents) -> None:
    """Raises a `ValueError` if a document has no clusters to train on or to score against."""
    for number, document in enumerate(documents):
        if not isinstance(document, dict) or "clusters" not in document:
            name = document.get("doc_key", number) if isinstance(document, dict) else number
            raise ValueError(
                "Documents to train on, or to score against, must have `clusters`. Received: "
                f"{name!r}, which has none"
            )


def check_training_clusters(documents) -> None:
    """Raises a `ValueError` if a cluster is empty, or a mention is in two clusters or twice."""
    for i, document in enumerate(documents):
        place = f"documents[{i}] ({document.get('doc_key', '')})"
        found = {}
        for c, cluster in enumerate(document.get("clusters", ())):
            check(len(cluster), place, "a cluster to train on must have mentions", cluster)
            for mention in map(tuple, cluster):
                if mention in found:
                    raise ValueError(
                        f"{place}: a mention to train on must be in one cluster, once. "
                        "keras_spanbert.data.coreference.merge_clusters merges clusters with a "
                        f"common mention, as the released scripts do. Received: {list(mention)} in "
                        f"clusters[{found[mention]}] and clusters[{c}]"
                    )
                found[mention] = c


def merge_clusters(clusters) -> list[list[tuple[int, int]]]:
    """Merges clusters that share a mention, and lists each mention once.

    Args:
        clusters: list of clusters, each a list of mentions `[start, end]`.

    Returns:
        List of lists of tuples `(start, end)`. Empty clusters are left out.

    Example:
    ```python
    keras_spanbert.data.coreference.merge_clusters([[[0, 1], [4, 4]], [[4, 4], [6, 6]]])
    # [[(0, 1), (4, 4), (6, 6)]]
    ```
    """
    merged = []
    for cluster in clusters:
        mentions = dict.fromkeys(map(tuple, cluster))
        apart = []
        for other in merged:
            if other.keys().isdisjoint(mentions):
                apart.append(other)
            else:
                mentions = other | mentions
        merged = [*apart, mentions]
    return [list(mentions) for mentions in merged if mentions]


def clusters_in_words(document: dict, clusters=None) -> list:
    """Converts clusters of a document in subtokens to spans of words.

    A word belongs to a mention if one of its subtokens does, so two mentions may become equal. They
    are listed twice, which `keras_spanbert.metrics.coreference` and the official scorer handle.

    Args:
        document: dict with `subtoken_map`.
        clusters: list of lists of `[start, end]` in subtokens. Defaults to `None`, the document's.

    Returns:
        List of lists of `[start, end]`, both included in the mention.

    Raises:
        ValueError: if the document is already in words.

    Example:
    ```python
    (document,) = keras_spanbert.data.coreference.read("document.jsonlines")
    clusters = keras_spanbert.data.coreference.clusters_in_words(document)
    ```
    """
    words = field(document, "subtoken_map", document["doc_key"], list)
    clusters = document["clusters"] if clusters is None else clusters
    _check_clusters(clusters, "clusters", len(words), document["doc_key"])
    return [[[words[start], words[end]] for start, end in cluster] for cluster in clusters]


def pair_with_clusters(documents, predicted_clusters) -> list[tuple[dict, list]]:
    """Pairs each document with its predicted clusters."""
    if len(documents) != len(predicted_clusters):
        raise ValueError(
            "`predicted_clusters` must have one list per document. Received: "
            f"{len(predicted_clusters)} for {len(documents)} documents"
        )
    return list(zip(documents, predicted_clusters))


def _lengths(document, name, place):
    """Returns the lengths of a document's lists of strings, after checking them."""
    lists = field(document, name, place, list)
    for i, strings in enumerate(lists):
        is_list = isinstance(strings, list) and all(isinstance(item, str) for item in strings)
        check(is_list, place, f"`{name}` must be lists of strings", strings, f"{name}[{i}]=")
    return [*map(len, lists)]


def _check_clusters(clusters, name, size, place):
    rule = (
        "a mention must be two integers, not end before it starts, and be within the "
        f"{size} tokens of the text"
    )
    for c, cluster in enumerate(clusters):
        is_list = isinstance(cluster, (list, tuple))
        check(is_list, place, "a cluster must be a list of mentions", cluster, f"{name}[{c}]=")
        for m, mention in enumerate(cluster):
            is_pair = isinstance(mention, (list, tuple)) and len(mention) == 2
            is_pair = is_pair and all(map(is_integer, mention))
            is_inside = is_pair and 0 <= mention[0] <= mention[1] < size
            check(is_inside, place, rule, mention, f"{name}[{c}][{m}]=")
