"""Export to ONNX: TensorFlow computes the graph on every backend, and tf2onnx converts it."""

import tempfile

import keras
import numpy as np

from keras_spanbert import files
from keras_spanbert.checks import check_in, check_path
from keras_spanbert.layers.sublayers import flatten_sublayers
from keras_spanbert.models.tensorflow_process import check_is_registered, run_on_tensorflow
from keras_spanbert.optional import check_installed

# Versions in which tf2onnx has all operations of our models.
OPSET_VERSIONS = range(13, 19)


def export_onnx(
    model: keras.Model,
    filepath,
    verbose: bool | None = None,
    input_signature=None,
    opset_version: int | None = None,
) -> None:
    """Writes a model from arrays to logits as ONNX: see `KerasModel.export`."""
    for package in ["tensorflow", "onnx", "tf2onnx"]:
        check_installed(package, "Export to ONNX")
    _check_weights(model)
    rule = f"from {OPSET_VERSIONS[0]} to {OPSET_VERSIONS[-1]}"
    check_in("opset_version", opset_version, opset_version in (None, *OPSET_VERSIONS), rule)
    inputs = _shapes_and_dtypes(model, input_signature)
    path = check_path("filepath", filepath)
    if keras.backend.backend() == "tensorflow":
        write_onnx(model, path, inputs, opset_version)
    else:
        check_is_registered(model)
        with tempfile.TemporaryDirectory() as preset:
            run_on_tensorflow(write_onnx, model, preset, path, inputs, opset_version)
    if verbose is not False:
        print(f"Saved artifact at '{path}'.")


def _check_weights(model):
    """Checks that the weights are float32 and fit into a file."""
    policies = {layer.dtype_policy.name for layer in flatten_sublayers([model]) if layer.weights}
    if policies != {"float32"}:
        raise ValueError(
            "Export to ONNX requires a float32 model without quantized layers. Load it with "
            f'`from_preset(path, dtype="float32")`. Received: {", ".join(sorted(policies))}'
        )
    num_bytes = 4 * model.count_params()
    if num_bytes >= 2**31:
        raise ValueError(
            f"The weights in an ONNX file must be below 2 GB. Received: {num_bytes / 2**30:.1f} GB"
        )


def _shapes_and_dtypes(model, signature):
    """Returns the inputs of a signature: `(shape, dtype)` by name, in the model's order."""
    if isinstance(signature, (list, tuple)) and len(signature) == 1:
        signature = signature[0]  # Keras accepts such a list too.
    names = list(model.input)
    optional = {layer.name for layer in model.layers if getattr(layer, "optional", False)}
    if signature is None:
        signature = model.input
    is_dict = isinstance(signature, dict)
    if not is_dict or not set(names) - optional <= set(signature) <= set(names):
        raise ValueError(
            f"`input_signature` must be a dict with the keys {', '.join(names)}. Optional ones: "
            f"{', '.join(sorted(optional)) or 'none'}. Received: "
            f"input_signature={signature!r:.200}"
        )
    return {
        name: (tuple(signature[name].shape), keras.backend.standardize_dtype(signature[name].dtype))
        for name in names
        if name in signature
    }


def write_onnx(model, path: str, inputs: dict, opset_version: int | None) -> None:
    """Converts a TensorFlow task or backbone to ONNX. `inputs` are `(shape, dtype)` by name."""
    import onnx
    import tensorflow as tf
    import tf2onnx.convert

    _convert_erfc()
    signature = [tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in inputs.items()]

    @tf.function(input_signature=signature, autograph=False)
    def compute(*tensors):
        outputs = model(dict(zip(inputs, tensors)), training=False)
        return outputs if isinstance(outputs, dict) else {model.onnx_output: outputs}

    try:
        onnx_model, _ = tf2onnx.convert.from_function(compute, signature, opset=opset_version)
        onnx.checker.check_model(onnx_model)
    except Exception as error:
        raise ValueError(f"tf2onnx cannot convert this {type(model).__name__}: {error}") from error
    for value in [*onnx_model.graph.input, *onnx_model.graph.output]:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:  # A dimension without a fixed size.
                dim.dim_param = f"{value.name}_{axis}" if axis else "batch"
    with files.atomic_write(path, "wb") as file:
        file.write(onnx_model.SerializeToString())


def _convert_erfc():
    """Adds TensorFlow's `Erfc`, which exact GELU uses, to tf2onnx."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, graph, node, **kwargs):
            node.type = "Erf"
            one = graph.make_const(f"{node.name}/one", np.array(1.0, "float32")).output[0]
            inputs = [one, node.output[0]]
            graph.insert_new_node_on_output("Sub", node.output[0], f"{node.name}/sub", inputs)
