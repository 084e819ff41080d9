"""Reads the text that /metrics gives."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """One scrape: sums of samples by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.time = time.monotonic()
        self.samples: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            if m := _SAMPLE.match(line):
                labels = dict(_LABEL.findall(m["labels"] or ""))
                self.samples.append((m["name"], labels, float(m["value"])))

    def find(self, name: str, **labels: str) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the samples of arraysim_<name> that carry all the labels."""
        for n, have, value in self.samples:
            if n == "arraysim_" + name and all(have.get(k) == v for k, v in labels.items()):
                yield have, value

    def sum(self, name: str, **labels: str) -> float:
        """Add up the samples of arraysim_<name> that carry all the labels."""
        return sum(v for _, v in self.find(name, **labels))

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Add up as sum does, apart by the values of one label."""
        out: dict[str, float] = {}
        for have, v in self.find(name, **labels):
            out[have.get(label, "")] = out.get(have.get(label, ""), 0) + v
        return out
