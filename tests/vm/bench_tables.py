"""The tables of bench.py: medians and ratios, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Record = dict[str, Any]

#: The first is divided by each of the others.
OURS = "arraysim"


class Rounds:
    """The records of one row of one peer over one fabric, by round."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = {r["round"]: r for r in records}

    def figures(self) -> dict[int, float]:
        """Return the figures by round."""
        return {n: r["figure"] for n, r in self.records.items() if "figure" in r}

    def costs(self, name: str) -> list[float]:
        """Return the figures of one kind of cost."""
        return [r["cost"][name] for r in self.records.values() if name in r.get("cost", {})]

    def cell(self) -> str:
        """Return the median, and in how many rounds there was none."""
        figures, failed = self.figures(), [r["failed"] for r in self.records.values() if "failed" in r]
        if not self.records:
            return ""
        if not figures:
            return failed[0].replace("|", "/")[:60]
        text = number(statistics.median(figures.values()))
        return f"{text} (failed {len(failed)} of {len(self.records)})" if failed else text

    def ratio(self, other: Rounds) -> str:
        """Return the ratio of the medians, and the least and largest of one round where there are several."""
        mine, theirs = self.figures(), other.figures()
        if not mine or not theirs:
            return ""
        text = f"**{statistics.median(mine.values()) / statistics.median(theirs.values()):.2f}**"
        by_round = [mine[n] / theirs[n] for n in mine if n in theirs]
        return f"{text} ({min(by_round):.2f} to {max(by_round):.2f})" if len(by_round) > 1 else text


def number(v: float) -> str:
    """Return a figure with three digits that count, or all of a whole number."""
    return f"{v:.0f}" if v >= 100 else f"{v:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def tables(records: list[Record], peers: Sequence[str], rows: dict[str, str]) -> str:
    """Return the tables of all records; rows are names by key."""
    keys = dict.fromkeys((r["fabric"], r["row"]) for r in records)
    order = sorted(keys, key=lambda k: (list(dict.fromkeys(f for f, _ in keys)).index(k[0]), list(rows).index(k[1])))
    peers = [p for p in peers if any(r["peer"] == p for r in records)]
    found = {
        (fabric, row, p): Rounds(r for r in records if (r["fabric"], r["row"], r["peer"]) == (fabric, row, p))
        for fabric, row in order
        for p in peers
    }
    others = [p for p in peers if p != OURS] if OURS in peers else []
    units = {r["row"]: r["unit"] for r in records}
    speed = []
    for fabric, row in order:
        cells = [found[fabric, row, p].cell() for p in peers]
        cells += [found[fabric, row, OURS].ratio(found[fabric, row, p]) for p in others]
        speed.append([f"{fabric}, {rows[row]}", units[row], *cells])
    text = table(["fabric, row", "unit", *peers, *(f"to {p}" for p in others)], speed)
    names = list(dict.fromkeys(name for r in records for name in r.get("cost", {})))
    serving = [p for p in peers if any("cost" in r for r in records if r["peer"] == p)]
    if not names:
        return text
    costs = []
    for fabric, row in order:
        cells = [" / ".join(cost(found[fabric, row, p].costs(name)) for p in serving) for name in names]
        if any(set(c) - set("- /") for c in cells):
            costs.append([f"{fabric}, {rows[row]}", *cells])
    heads = [name + (", µs" if name == "processor" else "") for name in names]
    return f"{text}\nAn I/O costs the serving process ({' / '.join(serving)}):\n\n" + table(
        ["fabric, row", *heads], costs
    )


def cost(figures: list[float]) -> str:
    """Return the median of a cost, "-" if it is not known."""
    return number(statistics.median(figures)) if figures else "-"
