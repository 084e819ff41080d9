#!/usr/bin/env python3
"""Prints how many cases a selection leaves of each test file, and how many it leaves out, as JSON.

    collect.py [ARGUMENT OF PYTEST]...

Nothing of the tests runs, and nothing of a guest is needed. It needs pytest; a file that cannot be
collected here, because something is missing on this machine, is not among the answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

import pytest


class Counter:
    """Counts cases by file: selected, left out."""

    def __init__(self) -> None:
        self.files: dict[str, list[int]] = {}

    def add(self, items: list[pytest.Item], which: int) -> None:
        """Count cases."""
        for item in items:
            self.files.setdefault(item.path.stem, [0, 0])[which] += 1

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what the selection leaves out."""
        self.add(items, 1)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what is left."""
        self.add(session.items, 0)


def main() -> None:
    """Collect."""
    os.environ["GUEST_COLLECT"] = "1"
    counter = Counter()
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        pytest.main(["--collect-only", "-q", *sys.argv[1:]], [counter])
    print(json.dumps(counter.files))


if __name__ == "__main__":
    main()
