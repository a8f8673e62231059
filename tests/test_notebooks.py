"""Every notebook runs from top to bottom in a kernel of its own."""

import os
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"

pytestmark = [
    pytest.mark.notebook,
    pytest.mark.slow,
    # the kernel's client, not the notebook
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning",
                               "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.ipynb")), ids=lambda path: path.name)
def test_notebook_runs_without_an_error(path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), ("saved without its outputs: run `make "
                                                        "notebooks`")
    assert os.stat(path).st_size < 1_000_000
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3",
                            resources={"metadata": {"path": str(FOLDER)}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    # no warning: every fit converged; bars of a slow day are none
    said = [re.sub(r"\r[^\r\n]*", "", output.text).strip() for output in outputs
            if output.get("name") == "stderr"]
    assert not [text for text in said if text]
    # a chapter of the course is short
    least = 2 if path.parent.name == "course" else 4
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= least
