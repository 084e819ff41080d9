"""Modules that are imported when somebody first uses them: not when pytest looks through the files of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from later import Later


def test_imported_by_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest asks each object of a file whether it is a fixture; that imports nothing, and the first use does."""
    (tmp_path / "comes_late.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = Later("comes_late")
    assert not hasattr(module, "_pytestfixturefunction")
    assert "comes_late" not in sys.modules
    assert module.answer == 42
    monkeypatch.delitem(sys.modules, "comes_late")
