"""Converts checkpoints: `python -m keras_spanbert.checkpoints SOURCE DESTINATION`.

SOURCE is a folder of Hugging Face's, of Google's BERT or of the released
coreference code, a fairseq .pt file, a tar archive of one of these, or an
hf://owner/name handle. DESTINATION becomes a keras-hub preset. If SOURCE is a
keras-hub preset, DESTINATION becomes a Hugging Face folder. Prints which weights
were loaded, left unused or newly initialized.
"""

import argparse
import sys

from keras_spanbert.console import protect_output


def main(arguments=None, program: str = "python -m keras_spanbert.checkpoints") -> int:
    parser = argparse.ArgumentParser(
        prog=program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("destination", metavar="DESTINATION", help="a new or empty folder")
    parser.add_argument(
        "--num_heads", type=int, help="number of attention heads of a fairseq .pt file"
    )
    parser.add_argument("--vocabulary", help="vocabulary file to use instead of that of SOURCE")
    parser.add_argument(
        "--next_sentence",
        action="store_true",
        help="also load the next sentence head of Google's or Hugging Face's BERT",
    )
    protect_output()
    args = parser.parse_args(arguments)

    from keras_spanbert.checkpoints.convert import convert, suppress_warnings

    try:
        with suppress_warnings():
            report = convert(**vars(args))
    except (ValueError, OSError) as error:
        print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(report)
    print(f"Wrote {args.destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
