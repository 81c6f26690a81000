"""Prepares corpora on Apache Beam: Flink, Spark, Dataflow, or this machine."""

import functools
import json
from collections.abc import Callable, Sequence

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions

from keras_spanbert import files, stores
from keras_spanbert.data.blocks import tokenizer_settings
from keras_spanbert.models.tokenizer import SpanBertTokenizer

# Beam finds this runner only by its class.
_CLASSES = {"DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner"}
# Without these options, Dask would process 128 shards as one task.
_PARTITIONS = ("--dask_partition_size", "--dask_npartitions")


def job_runner(name: str, options: Sequence[str], write_shard: Callable) -> Callable:
    """Returns the function that `prepare` uses to run its jobs: `write_shard` for each."""
    try:
        runner = apache_beam.runners.create_runner(_CLASSES.get(name, name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"`beam_runner` must be an installed runner. Received: {name!r}: {error}"
        ) from None

    options = list(options)
    if name == "DaskRunner" and not any(option.startswith(_PARTITIONS) for option in options):
        options.append(f"{_PARTITIONS[0]}=1")

    def run(corpus, jobs, tokenizer):
        settings = json.dumps(tokenizer_settings(tokenizer))
        with apache_beam.Pipeline(runner, PipelineOptions(options)) as pipeline:
            _ = (
                pipeline
                | "Shards" >> apache_beam.Create(jobs)
                | "Over the workers" >> apache_beam.Reshuffle()
                | "Tokenize and write" >> apache_beam.Map(_run_job, corpus, settings, write_shard)
            )
        if name == "DaskRunner":  # Beam leaves its client open.
            pipeline.result.client.close()
        results = [_result_path(job["path"]) for job in jobs]
        found = [files.read_json(path)["found"] for path in results]
        for path in results:
            stores.remove(path)
        return found

    return run


@functools.lru_cache(maxsize=1)
def _tokenizer(settings):
    """Returns one tokenizer per process, because TensorFlow keeps the traces of each one."""
    return SpanBertTokenizer(**json.loads(settings))


def _run_job(job, corpus, settings, write_shard):
    result = _result_path(job["path"])
    if not stores.kind(result):  # A worker may have written it and then been lost.
        split, shard, counts = write_shard(corpus, job, _tokenizer(settings))
        files.write_json(result, {"found": [split, shard, counts.tolist()]}, indent=None)


def _result_path(path):
    return f"{path}.found.json"
