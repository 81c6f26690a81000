"""Converts checkpoints: `python -m keras_spanbert.checkpoints SOURCE DESTINATION`.

SOURCE is a folder of Hugging Face's or of Google's BERT or of the released
coreference code, a fairseq .pt file, a tar archive of these or an
hf://owner/name handle, and DESTINATION becomes a keras-hub preset; or SOURCE is
such a preset, and DESTINATION becomes a Hugging Face folder. Prints what was
loaded, left unused or started fresh.
"""

import argparse
import sys


def main(arguments=None, program: str = "python -m keras_spanbert.checkpoints") -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("destination", metavar="DESTINATION", help="a new or empty folder")
    parser.add_argument("--num_heads", type=int, help="attention heads, for fairseq's .pt")
    parser.add_argument("--vocabulary", help="vocabulary file in place of SOURCE's")
    parser.add_argument(
        "--next_sentence",
        action="store_true",
        help="of Google's and Hugging Face's BERT: take its head for pairs of segments too",
    )
    args = parser.parse_args(arguments)

    from keras_spanbert.checkpoints.convert import convert, without_log

    try:
        with without_log():
            report = convert(**vars(args))
    except (ValueError, OSError) as error:
        print(f"keras_spanbert.checkpoints: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(report)
    print(f"Wrote {args.destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
