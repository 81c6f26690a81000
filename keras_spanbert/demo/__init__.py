"""A local web page to try models on: `python -m keras_spanbert.demo [PRESET ...]`.

PRESET is a folder that `train.py` or `save_to_preset` wrote, or a checkpoint
with a head for one of the tasks. The default is every preset in `saved_models/`
that the demo can show.
A coreference model marks the words that refer to the same thing. A question
answering model finds answers in a passage and shows their scores and positions.
A token classification model marks entities. A pretrained model fills blanks.
Models for classification, relation extraction and multiple choice show
probabilities. Each model has its own tab. Requires the extra [demo].
"""

import argparse
import glob
import os
import pkgutil
import sys

from keras_spanbert.optional import missing

# The page must not send data to anyone but its user.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")


def build_page(model, name: str = ""):
    """Builds the page of a model.

    Args:
        model: a task whose class has a `demo_page`, with a preprocessor.
        name: string. The name of the model on the page. Defaults to `""`.

    Returns:
        `gradio.Blocks`.

    Raises:
        ValueError: if the model's class has no page.

    Example:
    ```python
    build_page(answerer).launch()
    ```
    """
    if model.demo_page is None:
        raise ValueError(
            "`model` must be of a class with a page, which its `demo_page` names. Received: a "
            f"{type(model).__name__}"
        )
    return pkgutil.resolve_name(model.demo_page)(model, name)


def main(arguments=None, program: str = "python -m keras_spanbert.demo") -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("presets", metavar="PRESET", nargs="*", help="default: saved_models/*")
    parser.add_argument("--host", default="127.0.0.1", help="default: only this machine")
    parser.add_argument("--port", type=int, help="default: the first free port, starting at 7860")
    args = parser.parse_args(arguments)

    def mistake(message):
        print(f"{program}: {' '.join(message.split())}", file=sys.stderr)
        return 2

    if message := missing("gradio", "The page"):
        return mistake(message)
    presets = args.presets or sorted(map(os.path.dirname, glob.glob("saved_models/*/task.json")))
    if not presets:
        return mistake(f"No presets in saved_models/. Name one: {program} PRESET")
    models, names = [], []
    for preset in presets:
        try:
            models.append(load(preset))
        except (ValueError, OSError) as error:
            if args.presets:
                return mistake(str(error))
            mistake(f"Skipped {preset}: {error}")
            continue
        names.append(os.path.basename(os.path.normpath(preset)))
    if not models:
        return mistake(f"The demo can show no preset in saved_models/. Name one: {program} PRESET")
    import gradio  # Slow to import, so mistakes are reported before.

    try:
        pages = [build_page(model, name) for model, name in zip(models, names)]
        # Tabs need different names.
        tabs = [f"{i}. {name}" for i, name in enumerate(names, 1)]
        page = pages[0] if len(pages) == 1 else gradio.TabbedInterface(pages, tabs)
        # Quiet, because gradio's advice is about arguments that this command does not have.
        _, address, _ = page.launch(
            server_name=args.host, server_port=args.port, prevent_thread_lock=True, quiet=True
        )
    except OSError:
        return mistake(f"--port must be free. Received: --port={args.port} on {args.host}")
    print(f"The page is at {address}. Press Ctrl-C to stop", flush=True)
    page.block_thread()
    return 0


def load(preset: str):
    """Loads a preset or checkpoint as a model of the task that it has a trained head for."""
    import keras

    from keras_spanbert import api  # noqa: F401, registers the classes.
    from keras_spanbert.checkpoints.convert import infer_task_class
    from keras_spanbert.models.source import Preset, open_source
    from keras_spanbert.models.task import SpanBertTask

    if "://" not in preset and not os.path.exists(preset):
        raise ValueError(f"PRESET must be a preset or a checkpoint. Received: {preset}")
    source = open_source(preset)
    if isinstance(source, Preset):
        cls, name = source.task, source.config(SpanBertTask).get("class_name")
    else:
        cls = infer_task_class(source)
        name = cls.__name__
    if getattr(cls, "demo_page", None) is None:
        raise _not_ready(preset, name)
    # Quantized presets become float models, which are faster on most CPUs.
    model = cls.from_preset(preset, dtype=keras.config.dtype_policy().name)
    if model.untrained_heads():
        raise _not_ready(preset, name)
    if model.preprocessor is None:
        raise ValueError(f"PRESET must have a preprocessor. Received: {preset}")
    return model


def _not_ready(preset, class_name):
    received = preset if class_name is None else f"{preset}, of class {class_name}"
    return ValueError(
        "PRESET must have a trained head for a task that the demo supports. Train it first "
        f"(train.py --task=...). Received: {received}"
    )
