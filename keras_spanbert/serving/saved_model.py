"""One SavedModel from strings to answers or embeddings, for TF Serving."""

import os
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np

from keras_spanbert.models import answer_windows
from keras_spanbert.models.answer_decoding import candidate_spans
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.pretrainer import SpanBertPretrainer
from keras_spanbert.models.question_answerer import SpanBertQuestionAnswerer

# Windows that the model sees at once: of like length, so that little is padding.
_WINDOWS_AT_ONCE = 16
_N_BEST = 20
_CLASSES = (SpanBertQuestionAnswerer, SpanBertPretrainer, SpanBertBackbone)
_ODD = 0x2545F4914F6CDD1D  # Any large odd number.


def export_saved_model(model, path, tokenizer=None, max_answer_length=30):
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

    Of a `SpanBertPretrainer` or `SpanBertBackbone` it takes `text` string `[B]`
    and gives the encoder's `embeddings` float32 `[B, L, H]` with `token_ids`
    int32 `[B, L]`, `padding_mask` int32 `[B, L]` and `offsets` int32
    `[B, L, 2]`, in characters, -1 for special tokens. L is that of the longest
    text, which is cut where the preprocessor or the backbone ends.

    Args:
        model: `SpanBertQuestionAnswerer`, `SpanBertPretrainer` with
            preprocessor, or `SpanBertBackbone`.
        path: string. New folder on a local disk. TF Serving looks for versions in numbered
            folders of the model's: `answers/1`, `answers/2`, ...
        tokenizer: `SpanBertTokenizer`, of a backbone. Defaults to `None`, the
            preprocessor's of a task.
        max_answer_length: int, in tokens. Defaults to `30`.

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
    if "://" in os.fspath(path):
        raise ValueError(f"`path` must be on a local disk. Received: {path}")
    path = os.path.abspath(os.fspath(path))
    if os.path.lexists(path):
        raise ValueError(f"`path` must be new. Received: {path}")
    is_tensorflow = keras.backend.backend() == "tensorflow"
    if not (isinstance(model, _CLASSES) if is_tensorflow else type(model) in _CLASSES):
        raise ValueError(
            f"`model` must be a {', '.join(c.__name__ for c in _CLASSES[:2])} or "
            f"{_CLASSES[2].__name__}, or of a subclass on TensorFlow. Received: {model!r}"
        )
    if max_answer_length < 1:
        raise ValueError(f"`max_answer_length` must be at least 1. Received: {max_answer_length}")
    if isinstance(model, SpanBertBackbone) != (tokenizer is not None):
        raise ValueError(
            "`tokenizer` is for a backbone, which takes one; tasks have their own. "
            f"Received: tokenizer={tokenizer} with a {type(model).__name__}"
        )
    if isinstance(model, SpanBertQuestionAnswerer):
        model.check_preprocessor()
    if tokenizer is None:
        if model.preprocessor is None:
            raise ValueError("Strings need a preprocessor. Received: preprocessor=None")
        tokenizer = model.preprocessor.tokenizer
    if tokenizer.special_tokens_in_strings:
        raise ValueError(
            "`special_tokens_in_strings` must be False: whoever sends text could forge tokens. "
            f"Received: {tokenizer.special_tokens_in_strings}"
        )
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # TF Serving must never see half a model: complete, then renamed.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix=".export-") as folder:
        written = os.path.join(folder, "model")
        if is_tensorflow:
            _export(model, written, tokenizer, max_answer_length)
        else:
            _export_elsewhere(model, folder, written, tokenizer, max_answer_length)
        os.rename(written, path)


def _export_elsewhere(model, folder, written, tokenizer, max_answer_length):
    """Has a process that runs TensorFlow export the model's preset."""
    preset = os.path.join(folder, "preset")
    model.save_to_preset(preset)
    if isinstance(model, SpanBertBackbone):
        tokenizer.save_to_preset(preset)
    # Ours before what the path has of that name, but not the current folder.
    root = str(pathlib.Path(__file__).parents[2])
    path = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",  # The parent may hold the GPU's memory.
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    backbone = model if isinstance(model, SpanBertBackbone) else model.backbone
    arguments = [type(model).__name__, preset, written, max_answer_length]
    arguments.append(backbone.dtype_policy.name)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "keras_spanbert.serving", *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"The export under TensorFlow failed:\n{done.stdout}")


def _export(model, path, tokenizer, max_answer_length):
    import tensorflow as tf

    if isinstance(model, SpanBertQuestionAnswerer):
        serve = _answers(model, max_answer_length)
        names = ["question", "context"]
    else:
        serve = _embeddings(model, tokenizer)
        names = ["text"]
    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = [tf.TensorSpec([None], tf.string, name=name) for name in names]
    archive.add_endpoint("serving_default", serve, input_signature=signature)
    archive.write_out(path, verbose=False)


def _answers(model, max_answer_length):
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    from keras_spanbert.serving.tokenization import GraphTokenizer

    preprocessor = model.preprocessor
    tokenize = GraphTokenizer(preprocessor.tokenizer)

    def serve(question, context):
        texts = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8")  # Mends what is invalid.
        questions = tokenize(tf.strings.unicode_transcode(question, "UTF-8", "UTF-8"))
        contexts = tokenize(texts)
        windows = _windows(tnp, preprocessor, questions, contexts)
        start_logits, end_logits = _logits(model, windows)
        num_questions = tf.size(question, tf.int64)
        found = candidate_spans(
            tnp, start_logits, end_logits, windows, num_questions, _N_BEST, max_answer_length
        )
        example = tf.gather(windows["example_index"], found.window)
        length = tf.shape(start_logits, tf.int64)[1]
        token = [
            tf.gather(tf.reshape(windows["context_token"], [-1]), found.window * length + place)
            for place in (found.start, found.end)
        ]

        # === The 20 best of each question, of equal texts only the best ===
        start = tf.gather(contexts.offsets[:, 0], token[0])
        end = tf.gather(contexts.offsets[:, 1], token[1])
        key = _keys(contexts.characters, example, start, end)
        is_first = _is_first(key)
        rank = _rank(example, is_first)
        keep = is_first & (rank < _N_BEST)
        logit, example = tf.boolean_mask(found.logit, keep), tf.boolean_mask(example, keep)
        is_best = keep & (rank == 0)
        best_of = tf.gather(windows["example_index"], tf.boolean_mask(found.window, is_best))

        def of_best(values, nothing):
            return tf.tensor_scatter_nd_update(
                tf.fill([num_questions], nothing),
                best_of[:, None],
                tf.boolean_mask(values, is_best),
            )

        # === Score, and whether there is an answer ===
        best = of_best(found.logit, tf.constant(-float("inf"), tf.float64))
        has_any = tf.math.is_finite(best)
        top = tf.where(has_any, best, 0.0)
        total = tf.math.unsorted_segment_sum(
            tf.exp(logit - tf.gather(top, example)), example, num_questions
        )
        share = tf.ones_like(total)
        is_answered = has_any
        if model.null_threshold is not None:
            null = tf.math.unsorted_segment_min(
                tf.cast(start_logits[:, 0] + end_logits[:, 0], tf.float64),
                windows["example_index"],
                num_questions,
            )
            is_answered = has_any & ~(null - top > model.null_threshold)
            share = tf.where(is_answered, share, tf.exp(null - top))
            total += tf.exp(null - top)
        nothing = tf.constant(-1, tf.int64)
        start, end = [tf.where(is_answered, of_best(x, nothing), nothing) for x in (start, end)]
        return {
            "answer": tf.strings.substr(texts, tf.maximum(start, 0), end - start, "UTF8_CHAR"),
            "score": tf.cast(tf.where(has_any, share / total, 0.0), tf.float32),
            "start": tf.cast(start, tf.int32),
            "end": tf.cast(end, tf.int32),
        }

    return serve


def _windows(tnp, preprocessor, questions, contexts):
    """As `SpanBertQuestionAnswererPreprocessor.windows`."""
    import tensorflow as tf

    tokenizer = preprocessor.tokenizer
    length, stride = preprocessor.sequence_length, preprocessor.doc_stride
    head_sizes = tf.minimum(questions.sizes, preprocessor.max_question_length)
    parts = answer_windows.parts(tnp, head_sizes, contexts.sizes, length, stride)
    places = answer_windows.places(tnp, parts, length)

    def gather(tokens, index):
        starts = tf.cumsum(tokens.sizes, exclusive=True)
        index += tf.gather(starts, parts.example)[:, None]
        ids = tf.concat([tokens.ids, [0]], axis=0)  # One more, as there may be none.
        return tf.gather(ids, index), index

    question_ids, _ = gather(questions, places.question_token)
    context_ids, context_token = gather(contexts, places.context_token)
    ids = tf.where(places.in_context, context_ids, tokenizer.pad_token_id)
    ids = tf.where(places.in_question, question_ids, ids)
    ids = tf.where(places.is_separator, tokenizer.sep_token_id, ids)
    is_first = tf.range(length) == 0
    reach = answer_windows.most_reach(length, stride)
    return {
        "token_ids": tf.where(is_first, tokenizer.cls_token_id, ids),
        "segment_ids": tf.cast(places.segment_ids, tf.int32),
        "padding_mask": tf.cast(places.padding_mask, tf.int32),
        "example_index": parts.example,
        "context_token": context_token,  # [W, L], among all contexts' tokens.
        "offsets": tf.where(places.in_context, 0, -1)[:, :, None],  # Whether in the context.
        "is_max_context": answer_windows.is_max_context(tnp, parts, length, stride, reach),
    }


def _logits(model, windows):
    """Start and end logits `[W, L]`, some windows of like length at a time."""
    import tensorflow as tf

    names = ["token_ids", "segment_ids", "padding_mask"]
    length = windows["token_ids"].shape[1]
    sizes = tf.reduce_sum(windows["padding_mask"], axis=1)
    order = tf.argsort(sizes, stable=True)
    num_windows = tf.size(order)

    def step(i, logits):
        rows = order[i * _WINDOWS_AT_ONCE : (i + 1) * _WINDOWS_AT_ONCE]
        longest = tf.gather(sizes, rows[-1])
        inputs = {name: tf.gather(windows[name], rows)[:, :longest] for name in names}
        outputs = model(inputs, training=False)
        values = tf.stack([tf.cast(outputs[n], tf.float32) for n in ["start", "end"]], axis=2)
        return i + 1, logits.write(i, tf.pad(values, [[0, 0], [0, length - longest], [0, 0]]))

    num_steps = -(-num_windows // _WINDOWS_AT_ONCE)
    _, logits = tf.while_loop(
        lambda i, _: i < num_steps,
        step,
        [
            0,
            tf.TensorArray(
                tf.float32, num_steps, infer_shape=False, element_shape=[None, length, 2]
            ),
        ],
        parallel_iterations=1,
    )
    logits = tf.gather(logits.concat(), tf.math.invert_permutation(order))
    is_token = windows["padding_mask"] > 0
    return [tf.where(is_token, logits[:, :, i], -float("inf")) for i in range(2)]


def _keys(characters, example, start, end):
    """Numbers int64 `[n]`, equal for spans of equal text of one context.

    A polynomial's value modulo 2^64 stands for a text: a SavedModel that cut
    out the candidates' texts would copy a long context for each. Whoever wants
    two texts of one number can make them (a thousand letters each), and so
    have one of his own answers left out.
    """
    import tensorflow as tf

    shift = tf.gather(characters.row_starts(), example)
    start, end = start + shift, end + shift
    factors = np.array([_ODD, pow(_ODD, -1, 2**64)], np.uint64).view(np.int64)
    size = tf.size(characters.values) + 1
    powers, inverse_powers = [tf.math.cumprod(tf.fill([size], factor)) for factor in factors]
    terms = tf.cast(characters.values, tf.int64) * powers[1:]
    sums = tf.cumsum(tf.concat([[np.int64(0)], terms], axis=0))
    value = (tf.gather(sums, end) - tf.gather(sums, start)) * tf.gather(inverse_powers, start)
    return (value * _ODD + end - start) * _ODD + tf.cast(example, tf.int64)


def _is_first(keys):
    """Whether each of the keys `[n]` has not come before."""
    import tensorflow as tf

    unique, number = tf.unique(keys, out_idx=tf.int64)
    place = tf.range(tf.size(keys, tf.int64))
    first = tf.math.unsorted_segment_min(place, number, tf.size(unique, tf.int64))
    return tf.gather(first, number) == place


def _rank(groups, counted):
    """How many are `counted` before each of its group, with groups `[n]` in order."""
    import tensorflow as tf

    before = tf.cumsum(tf.cast(counted, tf.int64), exclusive=True)
    starts = tf.searchsorted(groups, groups, "left", tf.int64)
    return before - tf.gather(before, starts)


def _embeddings(model, tokenizer):
    import tensorflow as tf

    from keras_spanbert.serving.tokenization import GraphTokenizer

    backbone = model if isinstance(model, SpanBertBackbone) else model.backbone
    longest = backbone.max_sequence_length
    if backbone is not model:
        longest = min(longest, model.preprocessor.sequence_length)
    tokenize = GraphTokenizer(tokenizer)

    def serve(text):
        tokens = tokenize(tf.strings.unicode_transcode(text, "UTF-8", "UTF-8"))

        def rows(values, first, last):
            """`[CLS]` tokens `[SEP]`, to the end of the longest row."""
            values = tf.RaggedTensor.from_row_lengths(values, tokens.sizes, validate=False)
            values = values[:, : longest - 2]
            ones = tf.ones([tf.size(text), 1, *values.shape[2:]], values.dtype)
            return tf.concat([first * ones, values, last * ones], axis=1)

        ids = rows(tokens.ids, tokenizer.cls_token_id, tokenizer.sep_token_id)
        padding_mask = tf.ones_like(ids).to_tensor(0)
        token_ids = ids.to_tensor(tokenizer.pad_token_id)
        inputs = {
            "token_ids": token_ids,
            "segment_ids": tf.zeros_like(token_ids),
            "padding_mask": padding_mask,
        }
        offsets = rows(tf.cast(tokens.offsets, tf.int32), -1, -1)
        return {
            "embeddings": tf.cast(backbone(inputs, training=False), tf.float32),
            "token_ids": token_ids,
            "padding_mask": padding_mask,
            "offsets": offsets.to_tensor(-1),
        }

    return serve


def main(class_name, preset, path, max_answer_length, dtype):
    """Exports a preset, for `export_saved_model` on another backend."""
    from keras_spanbert.models.tokenizer import SpanBertTokenizer

    cls = next(c for c in _CLASSES if c.__name__ == class_name)
    model = cls.from_preset(preset, dtype=dtype)
    _export(model, path, SpanBertTokenizer.from_preset(preset), int(max_answer_length))
