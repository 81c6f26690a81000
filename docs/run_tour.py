"""Runs the notebook of the tour and keeps its outputs: `python docs/run_tour.py`."""

import pathlib

import nbclient
import nbformat

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs" / "tour.ipynb"
MAX_CELL_SECONDS = 1800  # Seconds.


def run(notebook):
    """Runs a notebook in the root of the checkout, and leaves out its warnings and times."""
    nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(ROOT)}},
        timeout=MAX_CELL_SECONDS,
    ).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main():
    notebook = run(nbformat.read(NOTEBOOK, as_version=4))
    text = nbformat.writes(notebook)
    if str(ROOT) in text or str(pathlib.Path.home()) in text:
        raise ValueError(f"The outputs of {NOTEBOOK} must have no path of this machine")
    NOTEBOOK.write_text(text + "\n")
    print(f"Wrote {NOTEBOOK}")


if __name__ == "__main__":
    main()
