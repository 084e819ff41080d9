"""tests/vm/guest.py, as far as it needs no guest: how long a test of a guest waits."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest
from harness import REPO, ToolError


@pytest.fixture(scope="module")
def guest() -> Iterator[ModuleType]:
    """The module, whose neighbours have names that others have here."""
    spec = importlib.util.spec_from_file_location("guest", REPO / "tests" / "vm" / "guest.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["guest"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["guest"]


def test_a_stopped_guest_goes_on_waiting(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes in which the machine gave the guest no time are not ten minutes in which a service did not come."""
    real, jumps = time.monotonic, itertools.count(step=600)
    monkeypatch.setattr(guest.Given, "TICK", 0.01)
    monkeypatch.setattr(guest.time, "monotonic", lambda: real() + next(jumps))
    looks = iter([None, None, None, "service"])
    assert guest.wait("service", lambda: next(looks), timeout=120) == "service"


def test_a_wait_ends(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes ends the wait, by the time that the guest was given."""
    monkeypatch.setattr(guest.Given, "TICK", 0.01)
    with pytest.raises(ToolError, match=r"^no service after 0.1 s. said before$"):
        guest.wait("service", lambda: None, timeout=0.1, said="said before")


def test_given_counts_what_was_given(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick counts as long as it took, and as two seconds if it came later than that."""
    given = guest.Given()
    times = iter([0.0, 1.0, 1.5, 500.0, 501.0])
    monkeypatch.setattr(guest.time, "monotonic", lambda: next(times))
    ticks = iter([False] * 4 + [True])
    monkeypatch.setattr(given.over, "wait", lambda _seconds: next(ticks))
    given.run()
    assert given.seconds == 1.0 + 0.5 + 2.0 + 1.0
