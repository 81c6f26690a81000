"""Converts checkpoints of other libraries to Keras models, and back."""

import contextlib
import logging
import os
from collections.abc import Iterator

from keras_spanbert import files
from keras_spanbert.checks import check_path
from keras_spanbert.formats import huggingface
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.checkpoint_entries import checkpoint_tensors, tensor_groups
from keras_spanbert.models.source import Preset, open_checkpoint, open_source
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.tasks import TASKS, model_class
from keras_spanbert.tasks.coreference.model import SpanBertCoreferenceResolver
from keras_spanbert.tasks.pretrain.model import SpanBertPretrainer


def from_huggingface(path: str) -> SpanBertBackbone:
    """Loads the encoder of a Hugging Face BERT or SpanBERT.

    Args:
        path: string. A folder with `config.json` and `model.safetensors` or
            `pytorch_model.bin` (or their shards), a tar archive of one, such as
            the released `spanbert_hf_base.tar.gz`, or `hf://owner/name`.

    Returns:
        `SpanBertBackbone`. For heads and tokenizer, use the `from_preset` of a
        task and of `SpanBertTokenizer` with the same `path`.

    Raises:
        ValueError: if a file is missing, damaged or contains more than data, or if
            a tensor is missing (the message names it) or does not fit the settings.

    Example:
    ```python
    backbone = keras_spanbert.checkpoints.from_huggingface("spanbert_hf_base.tar.gz")
    ```
    """
    return SpanBertBackbone.from_source(open_checkpoint(path))


def from_google(path: str, **arguments) -> SpanBertPretrainer:
    """Loads Google's BERT, with its MLM head, from a TensorFlow checkpoint.

    Args:
        path: string. A folder with `bert_config.json`, `bert_model.ckpt.*` and `vocab.txt`.
        **arguments: arguments of `SpanBertPretrainer`. With `next_sentence=True` the pooler and the
            next sentence head are loaded too. With `span_boundary=False` there is no SBO head.

    Returns:
        `SpanBertPretrainer`. Its SBO head is newly initialized.

    Raises:
        ValueError: see `from_huggingface`.

    Example:
    ```python
    pretrainer = keras_spanbert.checkpoints.from_google("cased_L-12_H-768_A-12")
    ```
    """
    return SpanBertPretrainer.from_source(open_checkpoint(path), **arguments)


def from_coreference(
    path: str, vocabulary: str | None = None, **arguments
) -> SpanBertCoreferenceResolver:
    """Loads a coreference model of the released TensorFlow code, heads included.

    Arguments that the tensors determine, such as the widest span, are derived from them.

    Args:
        path: string. A folder with `bert_config.json` and `model.max.ckpt.*`.
        vocabulary: string. A `vocab.txt` or `tokenizer.json`. Defaults to `None`: the one in the
            folder. Without any, the resolver has no preprocessor.
        **arguments: arguments of `SpanBertCoreferenceResolver`. `max_segment_len`, `model_type` and
            the other arguments without weights are in the released `experiments.conf`.

    Returns:
        `SpanBertCoreferenceResolver`.

    Raises:
        ValueError: see `from_huggingface`. Also if an argument does not fit the tensors.

    Example:
    ```python
    resolver = keras_spanbert.checkpoints.from_coreference(
        "spanbert_base", "vocab.txt", max_segment_len=384
    )
    ```
    """
    checkpoint = open_checkpoint(path, vocabulary=vocabulary)
    if not SpanBertCoreferenceResolver.is_in(checkpoint):
        raise ValueError(
            "`path` must have the weights of a coreference model. Received: "
            f"{path}, which has only other weights"
        )
    return SpanBertCoreferenceResolver.from_source(checkpoint, **arguments)


def from_fairseq(
    path: str, num_heads: int | None = None, vocabulary: str | None = None
) -> SpanBertPretrainer:
    """Loads the fairseq checkpoint of a SpanBERT, heads included.

    Sizes are derived from the tensors.

    Args:
        path: string. A `.pt` file.
        num_heads: int. Number of attention heads, which the tensors do not show. Defaults to
            `None`: one per 64 units of the hidden size, as in every released BERT.
        vocabulary: string. A `vocab.txt` or `tokenizer.json`. Defaults to `None`: the one next to
            the checkpoint. Without any, the pretrainer has no preprocessor.

    Returns:
        `SpanBertPretrainer`.

    Raises:
        ValueError: see `from_huggingface`. Also if `num_heads` must be given.

    Example:
    ```python
    pretrainer = keras_spanbert.checkpoints.from_fairseq("checkpoint_best.pt")
    ```
    """
    checkpoint = open_checkpoint(path, num_heads=num_heads, vocabulary=vocabulary, is_fairseq=True)
    return SpanBertPretrainer.from_source(checkpoint)


def to_huggingface(
    model: SpanBertTask | SpanBertBackbone, path: str, tokenizer: SpanBertTokenizer | None = None
) -> None:
    """Writes a model as a folder that `transformers` loads.

    A task becomes the class of `transformers` for it (`BertForQuestionAnswering`,
    `BertForSequenceClassification` for texts and relations, `BertForTokenClassification` or
    `BertForMultipleChoice`), with the names of its labels. A `SpanBertPretrainer` becomes a
    `BertForMaskedLM`, or a `BertForPreTraining` if it has a next sentence head, and a
    `SpanBertBackbone` a `BertModel`: load it with `add_pooling_layer=False` unless it has a
    pooled output. `transformers` has no class for the SBO head: it is written to
    `span_boundary_head.safetensors`, which `from_preset` reads.

    Args:
        model: `SpanBertBackbone`, or a task that `transformers` has a class for.
        path: string. A new or empty folder. After an error it is not written at all.
        tokenizer: `SpanBertTokenizer`. Defaults to `None`: the tokenizer of the
            model's preprocessor. Without any, no vocabulary is written.

    Raises:
        ValueError: if `path` is not empty, `tokenizer` has another size than the
            model, or the model is of another class.

    Example:
    ```python
    keras_spanbert.checkpoints.to_huggingface(pretrainer, "spanbert-mine")
    ```
    """
    if type(model) not in _classes().values():
        raise ValueError(f"`model` must be one of {', '.join(_classes())}. Received: model={model}")
    is_encoder = isinstance(model, SpanBertBackbone)
    backbone = model if is_encoder else model.backbone
    if tokenizer is None and not is_encoder and model.preprocessor is not None:
        tokenizer = model.preprocessor.tokenizer
    if tokenizer is not None and tokenizer.vocabulary_size() != backbone.vocabulary_size:
        raise ValueError(
            f"`tokenizer` must have as many tokens as the model, {backbone.vocabulary_size}. "
            f"Received: {tokenizer.vocabulary_size()}"
        )
    config = {
        "architectures": [model.huggingface_class],
        "pad_token_id": 0 if tokenizer is None else tokenizer.pad_token_id,
        **model.checkpoint_settings(),
    }
    groups = tensor_groups(type(model), model.get_config())
    tensors = checkpoint_tensors(model, model.checkpoint_settings(), groups)
    files.check_new(path := check_path("path", path))
    with files.new_folder(path) as folder:
        huggingface.write_huggingface(folder, config, tensors, is_encoder)
        if tokenizer is not None:
            huggingface.write_tokenizer(folder, tokenizer, backbone.max_sequence_length)


def convert(
    source: str,
    destination: str,
    num_heads: int | None = None,
    vocabulary: str | None = None,
    next_sentence: bool = False,
) -> str:
    """Converts a checkpoint to a keras-hub preset, or a preset to Hugging Face, with float weights.

    Args:
        source: string. A preset or checkpoint that `from_preset` accepts.
        destination: string. A new or empty folder.
        num_heads: int. See `from_fairseq`. Defaults to `None`.
        vocabulary: string. A `vocab.txt` or `tokenizer.json` to use instead of
            that of the source. Defaults to `None`.
        next_sentence: bool. Whether a pretrainer gets BERT's next sentence head and its pooler.
            Defaults to `False`: those of a checkpoint are not used.

    Returns:
        string. A report of the weights that were loaded, left unused or newly initialized.

    Raises:
        ValueError: see `from_huggingface` and `to_huggingface`.
    """
    destination = check_path("destination", destination)
    files.check_new(destination)
    opened = open_source(source, num_heads, vocabulary)
    if isinstance(opened, Preset):
        if next_sentence:
            raise ValueError(
                "`next_sentence` applies only to checkpoints of other libraries. Received: the "
                f"preset {source}"
            )
        if not os.path.isdir(opened.name):
            raise ValueError(f"`source` must exist. Received: {source}")
        # As a model of the class that it was saved as.
        classes = _classes()
        names = (opened.config(cls).get("class_name") for cls in [SpanBertTask, SpanBertBackbone])
        saved_as = next(filter(None, names), None)
        if saved_as not in classes:
            raise ValueError(
                f"{opened.name} must be a preset of one of {', '.join(classes)}. Received: "
                f"{saved_as}"
            )
        dtype = "float32" if opened.is_quantized else None  # Other libraries take float weights.
        model = classes[saved_as].from_preset(opened.name, dtype=dtype)
        tokenizer = None
        if isinstance(model, SpanBertBackbone) and opened.has_vocabulary:
            tokenizer = SpanBertTokenizer.from_source(opened)
        to_huggingface(model, destination, tokenizer)
        rows = [f"{'written':<15}{w.path:<70}{tuple(w.shape)}" for w in model.weights]
        return "\n".join([*rows, f"{len(rows)} written, for {model.huggingface_class}"])
    # The task whose head the checkpoint has, else pretraining. The heads of several tasks have the
    # same tensors.
    tasks = [model_class(task) for task in reversed(TASKS)]
    architectures = opened.settings.get("architectures") or []
    named = [cls for cls in tasks if cls.huggingface_class in architectures]
    cls = next((cls for cls in [*named, *tasks] if cls.is_in(opened)), SpanBertPretrainer)
    if next_sentence and cls is not SpanBertPretrainer:
        raise ValueError(
            f"`next_sentence` applies only to pretrainers. Received: {source}, a {cls.__name__}"
        )
    model = cls.from_source(opened, **({"next_sentence": True} if next_sentence else {}))
    with files.new_folder(destination) as folder:
        model.save_to_preset(folder)
    return opened.report()


@contextlib.contextmanager
def suppress_warnings() -> Iterator[None]:
    """Context manager that suppresses the library's warnings, which a report repeats."""
    log = logging.getLogger("keras_spanbert")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _classes():
    """Returns the classes that have a counterpart in `transformers`, by name."""
    tasks = [model_class(task) for task in TASKS]
    classes = [SpanBertBackbone, *(cls for cls in tasks if cls.huggingface_class)]
    return {cls.__name__: cls for cls in classes}
