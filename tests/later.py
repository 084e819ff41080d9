"""Modules that are imported when somebody first uses them.

Each process of pytest-xdist imports all files of the tests, and runs few of them: what takes a second to import and is
used by one file would be paid for by all.
"""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """Stands for a module until its first attribute is asked for, and hands on all that are public."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest asks each object of a file of tests whether it is a fixture, by an attribute that begins like this.
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
