"""Data and models in S3, here on a local server of moto. Run it from the root of a clone."""

# %% server
import os

import fsspec
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=5555, verbose=False)
server.start()
os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:5555"
os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
bucket = fsspec.filesystem("s3")
bucket.mkdir("my-bucket")
bucket.put("examples/data/lighthouse.txt", "my-bucket/texts/lighthouse.txt")

# %% use
import keras_spanbert as ks

corpus = ks.Corpus("s3://my-bucket/texts/*.txt", document_boundary="line")
print(corpus.num_documents, "documents")
tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
sizes = ks.SpanBertBackbone.SIZES["tiny"]
pretrainer = ks.SpanBertPretrainer(
    ks.SpanBertBackbone(tokenizer.vocabulary_size(), **sizes),
    ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64),
)
pretrainer.save_to_preset("s3://my-bucket/runs/mine")
print(*sorted(os.path.basename(path) for path in bucket.ls("my-bucket/runs/mine")))
again = ks.SpanBertPretrainer.from_preset("s3://my-bucket/runs/mine")
server.stop()
