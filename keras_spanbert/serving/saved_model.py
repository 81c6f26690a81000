"""Exports a SavedModel that takes strings, for TensorFlow Serving."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

import keras

from keras_spanbert import files
from keras_spanbert.checks import check_in, check_path
from keras_spanbert.layers.sublayers import flatten_sublayers
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.optional import require, tf, tnp
from keras_spanbert.text.strings import as_strings
from keras_spanbert.text.tokens import Part, token_rows, tokenize_texts

_COMMAND = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
# Exit code of the process if it cannot write its files.
_CANNOT_WRITE = 74


def strings(*names: str) -> list:
    """Returns the specifications of arguments that are strings `[B]`."""
    return [tf.TensorSpec([None], tf.string, name=name) for name in names]


def trim_padding(inputs: dict) -> dict:
    """Cuts off columns of inputs `[N, L]` that are padding in all rows, but keeps at least one."""
    sizes = tf.reduce_sum(inputs["padding_mask"], axis=1)
    longest = tf.maximum(tf.reduce_max(sizes), 1)
    return {name: array[:, :longest] for name, array in inputs.items()}


def outputs_by_length(apply: Callable, inputs: dict, shape: list[int], batch_size: int = 32):
    """Returns the outputs of a model for rows, float32 `[N, *shape]`.

    `apply` takes `inputs` `[n, l]` and returns float `[n, *shape]`. `inputs` are `[N, L]`. The
    batch size limits memory and padding.
    """
    sizes = tf.reduce_sum(inputs["padding_mask"], axis=1)
    order = tf.argsort(sizes, stable=True)
    num_steps = -(-tf.size(order) // batch_size)

    def step(i, outputs):
        rows = order[i * batch_size : (i + 1) * batch_size]
        longest = tf.gather(sizes, rows[-1])
        batch = {name: tf.gather(x, rows)[:, :longest] for name, x in inputs.items()}
        return i + 1, outputs.write(i, tf.cast(apply(batch), tf.float32))

    outputs = tf.TensorArray(tf.float32, num_steps, infer_shape=False, element_shape=[None, *shape])
    _, outputs = tf.while_loop(
        lambda i, _: i < num_steps, step, [0, outputs], parallel_iterations=1
    )
    return tf.gather(outputs.concat(), tf.math.invert_permutation(order))


def window_logits(model, windows: dict, num_labels: int, logits: Callable):
    """Returns logits float32 `[W, L, C]` of windows. Those at padding have no meaning.

    `logits` takes the model's outputs for some windows and returns `[windows, tokens, C]`.
    """
    length = windows["token_ids"].shape[1]
    inputs = {name: windows[name] for name in ["token_ids", "segment_ids", "padding_mask"]}

    def apply(batch):
        values = logits(model(batch, training=False))
        return tf.pad(values, [[0, 0], [0, length - tf.shape(values)[1]], [0, 0]])

    return outputs_by_length(apply, inputs, [length, num_labels], batch_size=16)


def embeddings(backbone, tokenizer, longest: int):
    """Returns the function that a SavedModel of an encoder serves. It takes `text`, strings `[B]`.

    Texts are cut to `longest` tokens, including `[CLS]` and `[SEP]`.
    """

    def serve(text):
        tokens = tokenize_texts(tokenizer, as_strings("text", text), with_offsets=True)
        part = Part(tokens.ids, tokens.starts, tf.minimum(tokens.sizes, longest - 2))
        inputs, [(is_inside, token)] = token_rows(tnp, [part], longest, tokenizer)
        offsets = tf.where(is_inside[:, :, None], tf.gather(tokens.offsets, token), -1)
        inputs = trim_padding({**inputs, "offsets": offsets})
        offsets = inputs.pop("offsets")
        outputs = backbone(inputs, training=False)
        if not isinstance(outputs, dict):
            outputs = {"sequence_output": outputs}
        outputs = {name: tf.cast(x, tf.float32) for name, x in outputs.items()}
        return {
            "embeddings": outputs.pop("sequence_output"),
            **outputs,
            "token_ids": inputs["token_ids"],
            "padding_mask": inputs["padding_mask"],
            "offsets": offsets,
        }

    return serve


def export_saved_model(
    model: SpanBertTask | SpanBertBackbone,
    path: str,
    tokenizer: SpanBertTokenizer | None = None,
    max_answer_length: int | None = None,
    **kwargs,
) -> None:
    """Writes a self-contained SavedModel that takes strings.

    Loading it requires only TensorFlow and the operations of TensorFlow Text. Models trained on JAX
    or PyTorch are exported in a separate process that runs TensorFlow.

    The function `serving_default` takes and returns arrays `[B]`, or of the shapes given below.
    Positions (in characters), `cluster` and `choice` are int32, scores float32, and other values
    strings, unless another type is given.

    - `SpanBertQuestionAnswerer`: takes `question` and `context`, of any length. It returns the same
      as `answer` (except for differences that `SpanBertTokenizer` describes) with the model's
      `null_threshold`: `answer`, `score`, `start` and `end`, -1 for no answer.
    - `SpanBertCoreferenceResolver`: takes `text` and returns the mentions that `resolve`
      finds, with M the largest number in a text: `mention`, `start`, `end` and
      `cluster`, the number of a cluster in its text, `[B, M]`. Missing mentions have
      `""` and -1. Speakers and genres cannot be given. The whole text is held in memory,
      so a text from which `top_span_ratio` would keep more than 3,900 spans is refused.
    - `SpanBertTextClassifier`: takes `text` and returns `label`, `score` and `scores` `[B, C]`, or
      only `score` for regression. With `multi_label` it also returns `labels` `[B, C]`, `""` for a
      class that is not assigned. The signature `pairs` takes `text` and `text_pair`, `""` for none.
    - `SpanBertRelationExtractor`: takes `text`; `subject_start`, `subject_end`,
      `object_start` and `object_end`, int32; and `subject_type` and `object_type` if
      the mode uses types. It returns `relation`, `score` and `scores` `[B, C]`, as
      `extract` does. A span outside its text, or an unknown type, is refused.
    - `SpanBertTokenClassifier`: takes `text` and returns the entities that `tag` finds,
      with E the largest number in a text: `text`, `label`, `start`, `end` and `score`,
      `[B, E]`. Missing entities have `""`, -1 and 0.
    - `SpanBertMultipleChoice`: takes `prompt` and `choices` `[B, C]`, `""` for no choice.
      It returns `choice`, an index, or -1 without choices, and `scores` `[B, C]`. The
      signature `contexts` also takes `context`, `""` for none.
    - `SpanBertPretrainer` or `SpanBertBackbone`: takes `text` and returns the encoder's
      `embeddings` float32 `[B, L, H]` with `token_ids` and `padding_mask` `[B, L]` and
      `offsets` `[B, L, 2]`, int32, -1 for special tokens. L is the length of the longest
      text, which is cut to the length of the preprocessor or the backbone. A backbone
      with a pooled output also returns `pooled_output` float32 `[B, H]`.

    Args:
        model: a task model with a preprocessor, or a `SpanBertBackbone`.
        path: string. A new or empty folder, local or in a store. TensorFlow Serving looks
            for versions in numbered folders: `answers/1`, `answers/2`, ...
        tokenizer: `SpanBertTokenizer`. Required for a backbone. Defaults to
            `None`: the tokenizer of the task's preprocessor.
        max_answer_length: int. Only for a `SpanBertQuestionAnswerer`: the largest
            number of tokens in an answer. Defaults to `None`: 30.
        **kwargs: other arguments of a task's `serving_function`.

    Raises:
        ValueError: if `path` is not a new or empty folder, or if the model is not one of
            these, has no tokenizer, or has longer windows than its encoder allows.
        OSError: if the disk is full, or `path` cannot be written.

    Example:
    ```python
    keras_spanbert.serving.export_saved_model(answerer, "saved_models/answers/1")
    served = tf.saved_model.load("saved_models/answers/1").signatures["serving_default"]
    served(question=tf.constant(["Who wrote it?"]), context=tf.constant(["Bob wrote it."]))
    ```
    """
    require("tensorflow", "`export_saved_model`")
    path = check_path("path", path)
    files.check_new(path)
    is_model = isinstance(model, (SpanBertTask, SpanBertBackbone))
    check_in("model", model, is_model, "a task of this library or a SpanBertBackbone")
    is_tensorflow = keras.backend.backend() == "tensorflow"
    # Another process does not find a subclass.
    if not is_tensorflow and _registered(type(model).__name__) is not type(model):
        raise ValueError(
            "With JAX and PyTorch a model is exported by a TensorFlow process, so `model` must not "
            f"be of a subclass. Received: {model!r}"
        )
    is_tokenizer = tokenizer is None or isinstance(tokenizer, SpanBertTokenizer)
    check_in("tokenizer", tokenizer, is_tokenizer, "a `SpanBertTokenizer` or None")
    if isinstance(model, SpanBertBackbone) != (tokenizer is not None):
        raise ValueError(
            "`tokenizer` must be given for a backbone, and only for one: tasks have their own. "
            f"Received: tokenizer={tokenizer} with a {type(model).__name__}"
        )
    if max_answer_length is not None:
        kwargs["max_answer_length"] = max_answer_length
    if kwargs and tokenizer is not None:
        raise ValueError(f"A backbone does not take {', '.join(kwargs)}. Received: {kwargs}")
    if tokenizer is None:
        if model.preprocessor is None:
            raise ValueError("Strings need a preprocessor. Received: preprocessor=None")
        tokenizer = model.preprocessor.tokenizer
    finds_them = tokenizer.special_tokens_in_strings
    rule = "False: otherwise clients could inject special tokens"
    check_in("special_tokens_in_strings", finds_them, not finds_them, rule)
    endpoints = _endpoints(model, tokenizer, kwargs)  # Raises errors before a process starts.
    if isinstance(model, SpanBertTask) and model.serves_heads:
        model.warn_if_untrained()
    # TensorFlow Serving must never see an incomplete model.
    with files.new_folder(path) as folder:
        if is_tensorflow:
            _export(model, folder, endpoints)
        else:
            _export_on_tensorflow(model, tokenizer, folder, kwargs)


def _endpoints(model, tokenizer, kwargs):
    """Returns the functions to serve and the specifications of their arguments, by name."""
    if isinstance(model, SpanBertBackbone):
        serve = embeddings(model, tokenizer, model.max_sequence_length)
        return {"serving_default": (serve, strings("text"))}
    return model.serving_endpoints(**kwargs)


def _export(model, path, endpoints):
    """Traces each function once. Keras's `ExportArchive` traces twice, and the model as well."""
    module = tf.Module()
    # The objects that the functions use must be attributes, so that they are saved.
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
    try:
        tf.saved_model.save(module, path, signatures=functions)
    except (tf.errors.ResourceExhaustedError, tf.errors.PermissionDeniedError) as error:
        raise OSError(f"TensorFlow cannot write the SavedModel: {error.message}") from error


# === A TensorFlow process that exports the models of other backends ===
def _export_on_tensorflow(model, tokenizer, path, kwargs):
    """Exports a model in a TensorFlow process. Raises `RuntimeError` with its output if it fails.

    Raises `OSError` if the process cannot write its files.
    """
    # This package's folder comes first in the path. The current folder is not in the path.
    root = str(pathlib.Path(__file__).parents[2])
    python_path = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",  # The calling process may hold the GPU's memory.
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
    }
    is_quantized = any(layer.quantization_mode for layer in flatten_sublayers([model]))
    # A quantized preset has the policies of its layers, and a dtype would convert it.
    dtype = "" if is_quantized else getattr(model, "backbone", model).dtype_policy.name
    with tempfile.TemporaryDirectory() as preset:
        tokenizer.save_to_preset(preset)
        model.save_to_preset(preset)
        arguments = [type(model).__name__, preset, dtype, path, json.dumps(kwargs)]
        done = subprocess.run(
            [sys.executable, "-P", "-c", _COMMAND, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    if done.returncode == _CANNOT_WRITE:
        raise OSError(done.stdout.splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"The export under TensorFlow failed:\n{done.stdout}")


def main(class_name: str, preset: str, dtype: str, path: str, kwargs: str) -> None:
    """Exports the model of a preset, in the process of `_export_on_tensorflow`."""
    model = _registered(class_name).from_preset(preset, dtype=dtype or None)
    tokenizer = SpanBertTokenizer.from_preset(preset)
    try:
        _export(model, path, _endpoints(model, tokenizer, json.loads(kwargs)))
    except OSError as error:
        print(" ".join(str(error).split()), flush=True)
        os._exit(_CANNOT_WRITE)  # At once, so that the error is the last line.


def _registered(class_name):
    return keras.saving.get_registered_object(f"keras_spanbert>{class_name}")
