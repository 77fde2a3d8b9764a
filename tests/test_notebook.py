"""The notebook runs from top to bottom, and what it claims, which it asserts itself, holds."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "src/attention_lab/notebooks/attention.ipynb"
PICTURES = 7

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")


def pictures(notebook) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_runs_from_top_to_bottom(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    assert pictures(notebook) == PICTURES


def test_what_a_reader_sees_who_runs_nothing_is_that_of_one_whole_run():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert pictures(notebook) == PICTURES
    assert NOTEBOOK.stat().st_size < 300_000
