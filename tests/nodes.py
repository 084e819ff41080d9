"""Nodes that show one array: their configurations, and what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Config, Daemon

SECRET = "correct horse battery staple, twice over"


@dataclass
class Node(Config):
    """A node; with forward it has no array."""

    number: int = 1
    link: int = 0
    forward: bool = False

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        doc = super().document(data, portal, metrics)
        secret = data / "link.secret"
        secret.write_text(SECRET + "\n")
        secret.chmod(0o600)
        doc["node"] = {"id": self.number, "name": "abc"[self.number - 1], "secret_file": str(secret)}
        if self.forward:
            doc["node"]["forward"] = f"127.0.0.1:{self.link}"
            for key in ("pools", "volumes", "store", "cache"):
                del doc[key]
        else:
            doc["node"]["listen"] = f"127.0.0.1:{self.link}"
        return doc


def linked(d: Daemon) -> bool:
    """Tell whether a node has a link to another one."""
    return d.metrics().sum("link_up") == 1


def eventually(what: str, ok: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + timeout
    while not ok():
        assert time.monotonic() < end, f"{what}: not within {timeout} s"
        time.sleep(0.02)
