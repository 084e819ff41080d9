#!/usr/bin/env python3
"""Runs `go test` and prints what it prints without -v, and which tests were skipped.

    scripts/gotest.py go test [ARGUMENT]... [PACKAGE]...

`go test` is silent about a test that skips itself, so that one that never runs looks as one that passed. This runs it
with -json, prints the line of each package and the output of what failed, and at the end a line for each reason, as
pytest has it, and the sums. Cases of a test (t.Run) count like tests. The exit status is that of `go test`, and 1
where there was no test at all.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: What Go says between the lines of a test's own output.
MARK = re.compile(r"^ *(=== |--- )")
#: Where a test said something.
PLACE = re.compile(r"^ *\S+\.go:\d+: ")
#: Lines of a package's tests that are shown where it fails and none of them did.
KEPT = 500


@dataclass
class Package:
    """The output of a package under way."""

    output: dict[str, list[str]] = field(default_factory=dict)  # of each test that has not passed
    last: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    running: set[str] = field(default_factory=set)  # tests that have begun and not ended
    ended: bool = False
    failed: bool = False  # a test of it did
    line: str = ""  # what go says of it where it fails


class Report:
    """Takes the events of `go test -json` and prints what somebody wants to read of them."""

    def __init__(self) -> None:
        self.counts = {"passed": 0, "skipped": 0, "failed": 0}
        self.skipped: dict[tuple[str, str], list[str]] = {}  # tests by package and reason
        self.packages: dict[str, Package] = {}

    def take(self, line: str) -> Iterable[str]:
        """Take a line, and return what is to be printed."""
        try:
            event: dict[str, Any] = json.loads(line)
            action = event["Action"]
        except (ValueError, KeyError, TypeError):
            return [line]
        name, test = event.get("Package", ""), event.get("Test", "")
        package = self.packages.setdefault(name, Package())
        if action == "run":
            package.running.add(test)
        elif action in ("pass", "skip", "fail"):
            package.running.discard(test)
            package.ended |= not test
        if action == "build-output" or (action == "output" and not test):
            return self.of_package(package, event["Output"])
        if action == "output":
            package.last.append(event["Output"])
            package.output.setdefault(test, []).append(event["Output"])
        elif action in ("pass", "skip", "fail") and test:
            self.end(name, package, test, action)
        elif action == "fail":
            return self.broken(package)
        return []

    @staticmethod
    def of_package(package: Package, text: str) -> list[str]:
        """Return what is to be printed of a package's own output: no word about all that passed."""
        if text.startswith("FAIL\t"):
            package.line = text  # comes behind its reasons
            return []
        return [] if text in ("PASS\n", "FAIL\n") or text.startswith("testing: warning: no tests") else [text]

    def end(self, name: str, package: Package, test: str, action: str) -> None:
        """Count a test, and forget what it said unless it failed, or raced with another one."""
        said = package.output.get(test, [])
        self.counts[{"pass": "passed", "skip": "skipped", "fail": "failed"}[action]] += 1
        if action == "skip":
            words = [PLACE.sub("", s).strip() for s in said if not MARK.match(s)]
            short = re.sub(r"^[^/]+/[^/]+/[^/]+/", "", name)
            self.skipped.setdefault((short, next((w for w in reversed(words) if w), "no reason")), []).append(test)
        if action == "fail":
            package.failed = True
        elif not any("DATA RACE" in s for s in said):
            package.output.pop(test, None)

    @staticmethod
    def broken(package: Package) -> list[str]:
        """Return what the tests of a package said that failed, or did not end; all of it where that is none."""
        if not package.failed and not package.output:
            return [*package.last, package.line]
        said = []
        for lines in package.output.values():
            lines = [s for s in lines if not re.match(r" *=== ", s)]
            said += sorted(lines, key=lambda s: not re.match(r" *--- ", s))  # how it ended comes first
        return [*said, package.line]

    def cut(self) -> Iterable[str]:
        """Return what the packages said that have not ended, as where go itself was killed: nobody else says it."""
        for name, package in self.packages.items():
            if name and not package.ended:
                names = sorted(t for t in package.running if not any(u.startswith(t + "/") for u in package.running))
                package.line = f"CUT\t{name}: it did not end; under way: {', '.join(names) or 'no test'}\n"
                yield from self.broken(package)

    def summary(self) -> list[str]:
        """Return the lines at the end."""
        lines = []
        for (package, reason), tests in sorted(self.skipped.items()):
            names = ", ".join(tests[:3]) + (f" and {len(tests) - 3} more" if len(tests) > 3 else "")
            lines.append(f"SKIPPED [{len(tests)}] {package}: {names}: {reason}\n")
        counts = ", ".join(f"{n} {what}" for what, n in self.counts.items() if n or what != "failed")
        return [*lines, counts + "\n"]


def main() -> int:
    """Run the tests."""
    command = sys.argv[1:]
    if command[1:2] != ["test"]:
        raise SystemExit(__doc__)
    report = Report()
    with subprocess.Popen(
        [*command[:2], "-json", *command[2:]], stdout=subprocess.PIPE, text=True, errors="replace"
    ) as go:
        assert go.stdout is not None
        for line in go.stdout:
            for text in report.take(line):
                print(text, end="", flush=True)
    for text in [*(report.cut() if go.returncode else []), *report.summary()]:
        print(text, end="")
    if go.returncode == 0 and not any(report.counts.values()):
        print("no test ran: the packages have none, or the selection leaves none of them")
        return 1
    return go.returncode


if __name__ == "__main__":
    sys.exit(main())
