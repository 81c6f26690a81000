"""A local web page to try models on: `python -m keras_spanbert.demo PRESET [PRESET ...]`.

PRESET is a model of any task but pretraining: a folder that `train.py` or
`save_to_preset` wrote, or a checkpoint with a head for one of them. With a
model of question answering, paste a passage, ask, and see the answers in the
passage and, below, the best of them with their scores and the characters that
they are. With one of coreference, paste a text, and see what in it is of the
same thing; with one of token classification, what it names. With one of
classification, relation extraction or multiple choice, see the probabilities.
Several models have a tab each. Takes the extra [demo].
"""

import argparse
import importlib.util
import os
import sys

# The page speaks to nobody but its user.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

_UNTRAINED = (
    "PRESET must be of a task to try, with a trained head: train it first (train.py --task=...). "
    "Received: "
)


def build_page(model, name: str = ""):
    """The page of a model.

    Args:
        model: a task but `SpanBertPretrainer`, with preprocessor.
        name: string. What the page calls the model. Defaults to `""`.

    Returns:
        `gradio.Blocks`.

    Example:
    ```python
    build_page(answerer).launch()
    ```
    """
    import keras_spanbert as ks
    from keras_spanbert.demo import answers, clusters, entities, labels

    pages = {
        ks.SpanBertQuestionAnswerer: answers.page,
        ks.SpanBertCoreferenceResolver: clusters.page,
        ks.SpanBertTextClassifier: labels.text_page,
        ks.SpanBertRelationExtractor: labels.relation_page,
        ks.SpanBertMultipleChoice: labels.choice_page,
        ks.SpanBertTokenClassifier: entities.page,
    }
    return next(page for cls, page in pages.items() if isinstance(model, cls))(model, name)


def main(arguments=None, program: str = "python -m keras_spanbert.demo") -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("presets", metavar="PRESET", nargs="+")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860 on")
    args = parser.parse_args(arguments)
    if importlib.util.find_spec("gradio") is None:
        return mistake("the page takes gradio (pip install keras-spanbert[demo])")
    try:
        models = [load(preset) for preset in args.presets]
    except (ValueError, OSError) as error:
        return mistake(str(error))
    import gradio  # Seconds, which a mistake does not wait for.

    names = [os.path.basename(os.path.normpath(preset)) for preset in args.presets]
    try:
        pages = [build_page(model, name) for model, name in zip(models, names)]
        # Two tabs of one name would be one.
        tabs = [f"{i}. {name}" for i, name in enumerate(names, 1)]
        page = pages[0] if len(pages) == 1 else gradio.TabbedInterface(pages, tabs)
        # Quiet: gradio's advice is about arguments that this command does not have.
        _, address, _ = page.launch(
            server_name=args.host, server_port=args.port, prevent_thread_lock=True, quiet=True
        )
    except OSError:
        return mistake(f"--port must be free. Received: --port={args.port} on {args.host}")
    print(f"The page is at {address}; Ctrl-C ends it", flush=True)
    page.block_thread()
    return 0


def load(preset: str):
    """The model of a preset or checkpoint, of the class that it has the head of.

    Raises:
        ValueError: where it has none, or no preprocessor.
    """
    import keras_spanbert as ks
    from keras_spanbert import formats
    from keras_spanbert.checkpoints.convert import task_of
    from keras_spanbert.formats import keras_hub

    if "://" not in preset and not os.path.exists(preset):
        raise ValueError(f"PRESET must be a preset or a checkpoint. Received: {preset}")
    source = formats.open_source(preset)
    if isinstance(source, formats.Checkpoint):
        cls = task_of(source)
    else:
        cls = keras_hub.registered_task(source)
    if cls is None or cls is ks.SpanBertPretrainer:
        raise ValueError(_UNTRAINED + preset)
    model = cls.from_preset(preset)
    if model.untrained_heads():
        raise ValueError(_UNTRAINED + preset)
    if model.preprocessor is None:
        raise ValueError(f"PRESET must have a preprocessor. Received: {preset}")
    return model


def mistake(message) -> int:
    print(f"keras_spanbert.demo: {' '.join(message.split())}", file=sys.stderr)
    return 2
