"""One SavedModel from strings to answers or embeddings, for TF Serving."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import keras

from keras_spanbert import files, stores
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.optional import import_tensorflow
from keras_spanbert.serving.embeddings import embeddings
from keras_spanbert.serving.signature import strings


def export_saved_model(
    model: SpanBertTask | SpanBertBackbone,
    path: str,
    tokenizer: SpanBertTokenizer | None = None,
    max_answer_length: int | None = None,
    **kwargs,
) -> None:
    """Writes a self-contained SavedModel that takes strings.

    It loads wherever TensorFlow and the operations of TensorFlow Text are.
    Models trained on JAX or PyTorch are exported by a process of their own that
    runs TensorFlow.

    Of a `SpanBertQuestionAnswerer`, `serving_default` takes `question` and
    `context`, strings `[B]`, contexts of any length, and gives what `answer`
    does (but see `SpanBertTokenizer` on graph code), with the model's
    `null_threshold`: `answer` string `[B]`, `score`
    float32 `[B]`, `start` and `end` int32 `[B]`, in characters of the context,
    -1 for no answer.

    Of a `SpanBertCoreferenceResolver` it takes `text` string `[B]` and gives the
    mentions that `resolve` finds, M for the text with the most: `mention` string
    `[B, M]`, `start` and `end` int32 `[B, M]`, in characters, and `cluster`
    int32 `[B, M]`, a number in its text; `""` and -1 where there are fewer.
    Speakers and genres cannot be given, and a text is held in memory whole: one
    of which more than 3,900 spans would be kept is refused.

    Of a `SpanBertTextClassifier` it takes `text` string `[B]` and gives `label`
    string `[B]`, `score` float32 `[B]` and `scores` float32 `[B, C]`, of regression
    `score` alone; the signature `pairs` takes `text` and `text_pair`, `""` for none.

    Of a `SpanBertRelationExtractor` it takes `text` string `[B]`, and int32 `[B]` in
    characters `subject_start`, `subject_end`, `object_start` and `object_end`, with
    `subject_type` and `object_type` string `[B]` where the mode shows types; and gives
    `relation` string `[B]`, `score` float32 `[B]` and `scores` float32 `[B, C]`, as
    `extract` does. A span that is not in its text, or an unknown type, is refused.

    Of a `SpanBertTokenClassifier` it takes `text` string `[B]` and gives the
    entities that `tag` finds, E for the text with the most: `text` and `label`
    string `[B, E]`, `start` and `end` int32 `[B, E]`, in characters, and `score`
    float32 `[B, E]`; `""`, -1 and 0 where there are fewer.

    Of a `SpanBertMultipleChoice` it takes `prompt` string `[B]` and `choices`
    string `[B, C]`, `""` for no choice, and gives `choice` int32 `[B]`, a number
    from 0, -1 where there is none, and `scores` float32 `[B, C]`; the signature
    `contexts` takes `context` string `[B]` too, `""` for none.

    Of a `SpanBertPretrainer` or `SpanBertBackbone` it takes `text` string `[B]`
    and gives the encoder's `embeddings` float32 `[B, L, H]` with `token_ids`
    int32 `[B, L]`, `padding_mask` int32 `[B, L]` and `offsets` int32
    `[B, L, 2]`, in characters, -1 for special tokens. L is that of the longest
    text, which is cut where the preprocessor or the backbone ends.

    Args:
        model: a task with preprocessor, or `SpanBertBackbone`.
        path: string. New folder, local or of a store. TF Serving looks for versions in numbered
            folders of the model's: `answers/1`, `answers/2`, ...
        tokenizer: `SpanBertTokenizer`, of a backbone. Defaults to `None`, the
            preprocessor's of a task.
        max_answer_length: int, in tokens, of a `SpanBertQuestionAnswerer`.
            Defaults to `None`, 30.
        **kwargs: other arguments of a task's `serving_function`.

    Raises:
        ValueError: where there is something at `path`, the model is none of
            these, has no tokenizer or windows longer than itself.

    Example:
    ```python
    keras_spanbert.serving.export_saved_model(answerer, "saved_models/answers/1")
    served = tf.saved_model.load("saved_models/answers/1").signatures["serving_default"]
    served(question=tf.constant(["Who wrote it?"]), context=tf.constant(["Bob wrote it."]))
    ```
    """
    import_tensorflow("`export_saved_model`")
    path = os.fspath(path)
    path = path if stores.is_store(path) else os.path.abspath(path)
    if stores.exists(path) if stores.is_store(path) else os.path.lexists(path):
        raise ValueError(f"`path` must be new. Received: {path}")
    if not isinstance(model, (SpanBertTask, SpanBertBackbone)):
        raise ValueError(
            f"`model` must be a task of this library or a SpanBertBackbone. Received: {model!r}"
        )
    is_tensorflow = keras.backend.backend() == "tensorflow"
    if not is_tensorflow and _registered(type(model).__name__) is not type(model):
        raise ValueError(
            "`model` may be of a subclass on TensorFlow alone: another process exports it. "
            f"Received: {model!r}"
        )
    if isinstance(model, SpanBertBackbone) != (tokenizer is not None):
        raise ValueError(
            "`tokenizer` is for a backbone, which takes one; tasks have their own. "
            f"Received: tokenizer={tokenizer} with a {type(model).__name__}"
        )
    if max_answer_length is not None:
        kwargs["max_answer_length"] = max_answer_length
    if kwargs and tokenizer is not None:
        raise ValueError(f"A backbone takes no {', '.join(kwargs)}. Received: {kwargs}")
    if tokenizer is None:
        if model.preprocessor is None:
            raise ValueError("Strings need a preprocessor. Received: preprocessor=None")
        tokenizer = model.preprocessor.tokenizer
    if tokenizer.special_tokens_in_strings:
        raise ValueError(
            "`special_tokens_in_strings` must be False: whoever sends text could forge tokens. "
            f"Received: {tokenizer.special_tokens_in_strings}"
        )
    endpoints = _endpoints(model, tokenizer, kwargs)
    if isinstance(model, SpanBertTask) and model.serves_heads:
        model.warn_if_untrained()
    # TF Serving must never see half a model.
    with files.new_folder(path) as folder:
        if is_tensorflow:
            _export(model, folder, endpoints)
        else:
            _export_elsewhere(model, folder, tokenizer, kwargs)


def _export_elsewhere(model, path, tokenizer, kwargs):
    """Has a process that runs TensorFlow export the model's preset."""
    # Ours before what the path has of that name, but not the current folder.
    root = str(pathlib.Path(__file__).parents[2])
    python_path = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",  # The parent may hold the GPU's memory.
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
    }
    with tempfile.TemporaryDirectory() as preset:
        model.save_to_preset(preset)
        backbone = model
        if isinstance(model, SpanBertBackbone):
            tokenizer.save_to_preset(preset)
        else:
            backbone = model.backbone
        arguments = [type(model).__name__, preset, path, backbone.dtype_policy.name]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "keras_spanbert.serving", *arguments, json.dumps(kwargs)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"The export under TensorFlow failed:\n{done.stdout}")


def _endpoints(model, tokenizer, kwargs):
    """The functions to serve and their arguments' specifications, by name."""
    if isinstance(model, SpanBertBackbone):
        serve = embeddings(model, tokenizer, model.max_sequence_length)
        return {"serving_default": (serve, strings("text"))}
    return model.serving_endpoints(**kwargs)


def _export(model, path, endpoints):
    """Traces each function once: Keras's `ExportArchive` does so twice, and the model besides."""
    import tensorflow as tf

    module = tf.Module()
    # What the functions use is part of what is saved.
    module.model_variables = [variable.value for variable in model.variables]
    module.model_resources = [
        part
        for part in tf.train.TrackableView(model).descendants()
        if isinstance(part, tf.saved_model.experimental.TrackableResource)
    ]
    functions = {
        name: tf.function(serve, input_signature=signature, autograph=False)
        for name, (serve, signature) in endpoints.items()
    }
    for name, function in functions.items():
        setattr(module, name, function)
    tf.saved_model.save(module, path, signatures=functions)


def _registered(class_name):
    return keras.saving.get_registered_object(f"keras_spanbert>{class_name}")


def main(class_name: str, preset: str, path: str, dtype: str, kwargs: str) -> None:
    """Exports a preset, for `export_saved_model` on another backend."""
    model = _registered(class_name).from_preset(preset, dtype=dtype)
    tokenizer = SpanBertTokenizer.from_preset(preset)
    _export(model, path, _endpoints(model, tokenizer, json.loads(kwargs)))
