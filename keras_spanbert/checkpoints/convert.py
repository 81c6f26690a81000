"""From other libraries' checkpoints to Keras models, and back."""

import os
import pathlib
import shutil
import tempfile

from keras_spanbert.checkpoints import fairseq, files, huggingface, sources
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.pretrainer import SpanBertPretrainer
from keras_spanbert.models.question_answerer import SpanBertQuestionAnswerer
from keras_spanbert.models.tokenizer import SpanBertTokenizer


def from_huggingface(path):
    """Loads the encoder of a Hugging Face BERT or SpanBERT.

    Args:
        path: string. A folder with `config.json` and `model.safetensors` or
            `pytorch_model.bin` (or their shards), a tar archive of one, such as
            the released `spanbert_hf_base.tar.gz`, or `hf://owner/name`.

    Returns:
        `SpanBertBackbone`. For heads and tokenizer use the `from_preset` of a
        task and of `SpanBertTokenizer` with the same `path`.

    Raises:
        ValueError: where a file is missing, damaged or holds more than data, or
            a tensor is missing (it is named) or does not fit the settings.

    Example:
    ```python
    backbone = keras_spanbert.checkpoints.from_huggingface("spanbert_hf_base.tar.gz")
    ```
    """
    return sources.open_checkpoint(path).backbone()


def from_google(path):
    """Loads Google's BERT, with its MLM head, from a TensorFlow checkpoint.

    Args:
        path: string. A folder with `bert_config.json`, `bert_model.ckpt.*` and
            `vocab.txt`.

    Returns:
        `SpanBertPretrainer`, its SBO head started fresh.

    Raises:
        ValueError: see `from_huggingface`.

    Example:
    ```python
    pretrainer = keras_spanbert.checkpoints.from_google("cased_L-12_H-768_A-12")
    ```
    """
    return sources.open_checkpoint(path).task(SpanBertPretrainer)


def from_fairseq(path, num_heads=None, vocabulary=None):
    """Loads the fairseq checkpoint of a SpanBERT, heads included.

    Sizes are read off the tensors.

    Args:
        path: string. A `.pt` file.
        num_heads: int. Number of attention heads, which no tensor shows.
            Defaults to `None`, one for 64 of the hidden size, as in every
            released BERT.
        vocabulary: string. A `vocab.txt` or `tokenizer.json`. Defaults to
            `None`, that beside the checkpoint; without any the pretrainer has
            no preprocessor.

    Returns:
        `SpanBertPretrainer`.

    Raises:
        ValueError: see `from_huggingface`; and where `num_heads` must be given.

    Example:
    ```python
    pretrainer = keras_spanbert.checkpoints.from_fairseq("checkpoint_best.pt")
    ```
    """
    return fairseq.open_fairseq(os.fspath(path), num_heads, vocabulary).task(SpanBertPretrainer)


def to_huggingface(model, path, tokenizer=None):
    """Writes a model as a folder that `transformers` loads.

    A `SpanBertPretrainer` becomes a `BertForMaskedLM`; its SBO head, which
    `transformers` has no class for, goes to `span_boundary_head.safetensors`,
    which `from_preset` reads again. A `SpanBertQuestionAnswerer` becomes a
    `BertForQuestionAnswering`, a `SpanBertBackbone` a `BertModel` without
    pooler: load that with `add_pooling_layer=False`.

    Args:
        model: `SpanBertBackbone`, `SpanBertPretrainer` or
            `SpanBertQuestionAnswerer`.
        path: string. A new or empty folder. It is there whole or not at all.
        tokenizer: `SpanBertTokenizer`. Defaults to `None`, that of the model's
            preprocessor; without any no vocabulary is written.

    Raises:
        ValueError: where `path` holds something, `tokenizer` has another size
            than the model, or the model is of another class.

    Example:
    ```python
    keras_spanbert.checkpoints.to_huggingface(pretrainer, "spanbert-mine")
    ```
    """
    write_folder(path, lambda folder: huggingface.write_huggingface(model, folder, tokenizer))


def convert(source, destination, num_heads=None, vocabulary=None):
    """Converts a checkpoint to a keras-hub preset, or a preset to Hugging Face.

    Args:
        source: string. What `from_preset` takes.
        destination: string. A new or empty folder.
        num_heads: int. See `from_fairseq`. Defaults to `None`.
        vocabulary: string. A `vocab.txt` or `tokenizer.json` in place of the
            source's. Defaults to `None`.

    Returns:
        string, the report: what was loaded, left unused, started fresh.

    Raises:
        ValueError: see `from_huggingface` and `to_huggingface`.
    """
    check_new(destination)
    opened = sources.open_source(source, num_heads, vocabulary)
    if isinstance(opened, str):
        if not os.path.isdir(opened):
            raise ValueError(f"SOURCE must be there. Received: {source}")
        model = _load_preset(opened)
        tokenizer = None
        if isinstance(model, SpanBertBackbone) and _has(opened, "tokenizer.json"):
            tokenizer = SpanBertTokenizer.from_preset(opened)
        to_huggingface(model, destination, tokenizer)
        architecture, _ = huggingface.ARCHITECTURES[type(model)]
        rows = [f"{'written':<15}{w.path:<70}{tuple(w.shape)}" for w in model.weights]
        return "\n".join([*rows, f"{len(rows)} written, for {architecture}"])
    is_answerer = "qa_outputs.weight" in opened.tensors
    model = opened.task(SpanBertQuestionAnswerer if is_answerer else SpanBertPretrainer)
    write_folder(destination, model.save_to_preset)
    return opened.report()


def _load_preset(folder):
    """The model of a keras-hub preset, of the class that it was saved as."""
    name = "task.json" if _has(folder, "task.json") else "config.json"
    saved_as = files.read_json(os.path.join(folder, name)).get("class_name")
    classes = {cls.__name__: cls for cls in huggingface.ARCHITECTURES}
    if saved_as not in classes:
        raise ValueError(
            f"{folder} must be a preset of one of {', '.join(classes)}. Received: {saved_as}"
        )
    return classes[saved_as].from_preset(folder)


def _has(folder, name):
    return os.path.isfile(os.path.join(folder, name))


def check_new(path):
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise ValueError(f"The folder to write must be new or empty. Received: {path}")


def write_folder(path, write):
    """Has `write` fill a folder beside `path`, which then takes its place."""
    check_new(path)
    path = pathlib.Path(path)
    new_parents = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        write(str(folder))
        # As the user's other files are: libraries make theirs private.
        os.chmod(folder, 0o777 & ~_umask())
        for file in folder.rglob("*"):
            os.chmod(file, (0o777 if file.is_dir() else 0o666) & ~_umask())
        os.replace(folder, path)
    except BaseException:
        shutil.rmtree(folder)
        for parent in new_parents:
            parent.rmdir()
        raise


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
