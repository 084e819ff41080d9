"""scripts/walk.py: the page has to show what was written below the clone, and not its name alone."""

from __future__ import annotations

import pytest
import walk
from harness import Daemon, MiB, binary, run

SAYS = (
    "157 MiB below the host layer to volume demo-clone in pool demo-shared by xcopy. Hosts wrote 0 B to it meanwhile. "
    "Meanwhile another volume of the pool waited longer: demo-victim 235.0 ms per read or write, 0.20 ms before."
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (SAYS, 157 * MiB),
        (SAYS.replace("157 MiB", "512 B"), 512),
        (SAYS.replace("157 MiB", "0 B"), 0),
        (SAYS.replace("demo-clone", "demo-golden"), 0),
        (SAYS.replace("Hosts wrote 0 B", "Hosts wrote 1 MiB"), 0),
        ("demo-clone", 0),
    ],
)
def test_a_name_alone_is_no_evidence(text: str, want: float) -> None:
    assert walk.undercover_bytes(text) == want


@pytest.mark.slow
def test_on_page() -> None:
    with Daemon(name="walk") as d:
        page = d.cli_json("status")["page"]
        with pytest.raises(Exception, match="demo-clone"):
            walk.on_page(page, patience=1)
        run([binary(), "demo", "--running", "--data", d.data], timeout=300)
        assert "below the host layer" in walk.on_page(page, patience=120)
