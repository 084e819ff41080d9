"""The notebook of the documentation runs as it is, and its figure shows what document 001 says."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

import pytest
from harness import REPO, binary
from later import Later

nbclient, nbformat, traitlets = Later("nbclient"), Later("nbformat"), Later("traitlets.config")


@pytest.mark.slow
def test_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(REPO / "docs" / "notebooks" / "incident.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    monkeypatch.setenv("ARRAYSIM_BIN", str(binary()))
    monkeypatch.setenv("ARRAYSIM_SCENARIO", str(REPO / "testdata" / "scenarios" / "001-small.yaml"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    with tempfile.TemporaryDirectory(prefix="arraysim-kernel-", dir="/tmp") as sockets:  # a path has 107 bytes at most
        # By TCP the kernel would listen on ports that were free a second before, and that others may have by then.
        by = traitlets.Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/s"}})
        client = nbclient.NotebookClient(notebook, timeout=600, startup_timeout=300, kernel_name="python3", config=by)
        client.execute(cwd=str(tmp_path))
    summary = ast.literal_eval(notebook.cells[-1].outputs[-1]["data"]["text/plain"].replace("np.float64", ""))
    assert summary["holder before"] == "vmvdi03_v00"
    assert summary["holder in the tower"] == "vmvdi03_v02"
    assert summary["its share of the partition"] >= 0.95
    assert summary["host writes to it, MB/s"] < 0.1
    [figure] = tmp_path.glob("*/holders.svg")
    assert "vmvdi03_v02" in figure.read_text() or figure.stat().st_size > 10_000
