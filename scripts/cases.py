#!/usr/bin/env python3
"""Lists the cases of a tree that `make test` and `make prove` run between them, and compares two such lists.

    scripts/cases.py list [TREE] > AFTER       one id a line: kind, who runs it, the case
    scripts/cases.py compare BEFORE AFTER      how many of each kind, and what became of each id that is gone

A case of Go is a test or a fuzz target in a file that some build has: the usual one, the race detector's or that
for Ceph. It is read from the source, and not compiled. A case of pytest is what it collects in tests and, as in a
guest, in tests/vm; TREE may be an older commit in a worktree of its own. Cases that one run of a test makes by itself,
as seeds and subtests of Go, count with it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
PYTHON = REPO / ".cache" / "venv" / "bin" / "python"
BUILDS = {"": "test", "race": "test", "rados": "prove"}

CASE = re.compile(r"^func ((?:Test|Fuzz|Example)(?:[^a-z(]\w*)?)\(", re.MULTILINE)

# Runs in the tree's tests: pytest's plug-in writes the ids, who runs each, by its marks.
COLLECT = """
import sys, pytest
sys.path[:0] = sys.argv[2:]
if "vm" in sys.argv[1]:
    import guest
    guest.HERE = True
class Ids:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        for i in items:
            by = "prove" if any(i.get_closest_marker(m) for m in PROVE) else "test"
            print("ID", by, i.nodeid, file=sys.stderr)
        items.clear()
PROVE = ["slow", "qemu"] if sys.argv[1] == "vm" else ["proof"]
ALL = "proof or cluster or not slow or slow"  # says of each mark that conftest.py heeds that it is asked for
sys.exit(pytest.main(["-q", "--collect-only", "-m", ALL, "."], plugins=[Ids()]))
"""


def of_go(tree: Path) -> dict[str, str]:
    """Return each case of Go with who runs it."""
    found: dict[str, str] = {}
    for tag, by in BUILDS.items():
        argv = ["go", "list", "-tags", tag, "-json=Dir,TestGoFiles,XTestGoFiles", "./..."]
        out = subprocess.run(argv, cwd=tree, stdout=subprocess.PIPE, text=True, check=True).stdout
        decoder, at = json.JSONDecoder(), 0
        while at < len(out.rstrip()):
            package, at = decoder.raw_decode(out, at)
            at += 1
            for file in package.get("TestGoFiles", []) + package.get("XTestGoFiles", []):
                path = Path(package["Dir"], file)
                for name in CASE.findall(path.read_text()):
                    if name != "TestMain":
                        found.setdefault(f"{path.parent.relative_to(tree)}.{name}", by)
    return found


def of_pytest(tree: Path, vm: bool) -> dict[str, str]:
    """Return each case of tests, or of tests/vm, with who runs it."""
    where = tree / "tests" / "vm" if vm else tree / "tests"
    paths = [str(where), str(tree / "tests"), str(tree / "scripts"), str(tree / "scripts" / "vm")]
    argv = [PYTHON, "-c", COLLECT, "vm" if vm else "tools", *paths]
    done = subprocess.run(argv, cwd=where, capture_output=True, text=True)
    found = dict(reversed(m) for m in re.findall(r"^ID (\w+) (.+)$", done.stderr, re.MULTILINE))
    if not found or re.search(r"^(ERROR|INTERNALERROR)", done.stdout, re.MULTILINE):
        raise SystemExit(f"cases: pytest cannot collect {where}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def read(file: Path) -> dict[tuple[str, str], str]:
    """Return the cases of a list, by kind and id, with who runs each."""
    cases = {}
    for line in file.read_text().splitlines():
        kind, by, name = line.split(" ", 2)
        cases[kind, name] = by
    return cases


def split(kind: str, name: str) -> tuple[str, str, str]:
    """Return the place, the function and the parameters of a case."""
    place, _, rest = name.rpartition(".") if kind == "go" else name.partition("::")
    function, _, parameters = rest.partition("[")
    return place, function, parameters


def compare(before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> None:
    """Print what became of the cases."""
    for kind in ("go", "tools", "vm"):
        was = {n for k, n in before if k == kind}
        now = {n for k, n in after if k == kind}
        proofs = Counter(after[kind, n] for n in now)
        print(f"{kind}: {len(was)} before, {len(now)} now ({proofs['prove']} in prove), {len(was & now)} in both")
        later = [n for n in was & now if (before[kind, n], after[kind, n]) == ("test", "prove")]
        for name in sorted(later):
            print(f"  to prove: {name}")
        functions = defaultdict(list)
        for n in now:
            functions[split(kind, n)[1]].append(n)
        for name in sorted(was - now):
            place, function, _ = split(kind, name)
            same = sorted(functions[function])
            here = [n for n in same if split(kind, n)[0] == place]
            if here:
                print(f"  other parameters: {name} ({len(here)} now, as {here[0]})")
            elif same:
                print(f"  moved: {name} to {split(kind, same[0])[0]}")
            else:
                print(f"  GONE: {name}")


def main() -> None:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("tree", nargs="?", type=Path, default=REPO)
    both = commands.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "compare":
        compare(read(args.before), read(args.after))
        return
    tree = args.tree.resolve()
    kinds = {"go": of_go(tree), "tools": of_pytest(tree, vm=False), "vm": of_pytest(tree, vm=True)}
    for kind, cases in kinds.items():
        for name in sorted(cases):
            print(kind, cases[name], name)


if __name__ == "__main__":
    sys.exit(main())
