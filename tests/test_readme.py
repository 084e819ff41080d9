"""What README.md and docs/first-session.md show: commands are typed as a newcomer does, and their output compared."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from harness import REPO, Daemon, binary, run


def blocks(document: str) -> list[list[str]]:
    """Return the indented blocks of a document, without their indentation."""
    text = (REPO / document).read_text()
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    return [[line[4:] for line in block.strip("\n").splitlines()] for block in found]


def typed(lines: list[str], d: Daemon) -> str:
    """Return a command of the documents as it is typed against a daemon of the test's own."""
    script = "\n".join(lines).replace("127.0.0.1:3260", d.portal().removeprefix("iscsi://"))
    return re.sub(r"\bbin/arraysim\b", f"{binary()} --data {d.data}", script)


#: What depends on the machine: times, rates, and what of the clone has been destaged by now.
VARIES = [
    (r"^ +[\d.]+  (fill|before|clone|after) .*$", r"\1"),
    (r"^array \S+, page \S+$", "array"),
    (r"[\d.]+ ms\b", "N ms"),
    (r"up to \d+ %", "up to N %"),
    (r"^(demo-\w+ +demo-\w+(?: +[\d.]+ \w+){4}) +[\d.]+ \w+$", r"\1"),  # DIRTY
    (r"^(demo-victim +demo-shared +0 B) +[\d.]+ \w+", r"\1 N"),
    (r" {2,}", "  "),
]


def masked(lines: list[str]) -> list[str]:
    """Return lines without what varies; those of a phase are one."""
    out: list[str] = []
    for line in lines:
        for pattern, by in VARIES:
            line = re.sub(pattern, by, line.rstrip())
        if not out or line != out[-1]:
            out.append(line)
    return out


def differences(shown: list[str], got: str) -> list[str]:
    """Return which pieces of the shown output, between lines of dots, the real one does not have, in their order."""
    real, missing = "\n".join(masked(got.splitlines())) + "\n", []
    for piece in re.split(r"^\.\.\.$", "\n".join(shown), flags=re.MULTILINE):
        if not piece.strip():
            continue
        want = "\n".join(masked(piece.strip("\n").splitlines())) + "\n"
        at = real.find(want)
        if at < 0:
            missing.append(piece)
        else:
            real = real[at + len(want) :]
    return missing


def sessions(block: list[str]) -> list[tuple[str, list[str]]]:
    """Return the commands of a block of output, each behind a prompt, with what they print."""
    out: list[tuple[str, list[str]]] = []
    for line in block:
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


def clone_rates(lines: list[str]) -> list[float]:
    """Return UNDERCOVER, in MB/s, of the demonstration's rows while it clones."""
    rows = (re.match(r" +[\d.]+  clone +[\d.]+ +([\d.]+) ", line) for line in lines)
    return [float(row[1]) for row in rows if row]


def shows_undercover(lines: list[str]) -> bool:
    """Tell whether UNDERCOVER is above zero in most rows of the clone: what the timeline is there to show."""
    rates = clone_rates(lines)
    return sum(rate > 0 for rate in rates) > len(rates) / 2


@pytest.mark.slow
def test_first_screen() -> None:
    commands, output = blocks("README.md")[:2]
    names = [line.split("#")[0].strip() for line in commands]
    assert len(names) == 3 and names[0] == "make run"
    shown = sessions(output)
    assert [command for command, _ in shown] == names[1:], "each command's output is shown"
    with Daemon(name="readme") as d:  # as `make run` starts it
        for command, lines in shown:
            out = run(["bash", "-euo", "pipefail", "-c", typed([command], d)], timeout=300).stdout
            assert not (bad := differences(lines, out)), f"{command}: README.md shows\n{bad}\nand it prints\n{out}"
            assert any("UNDERCOVER" in line for line in lines)
            if "demo" in command:
                assert shows_undercover(lines) and shows_undercover(out.splitlines()), out


def test_first_screen_is_first() -> None:
    """A sentence, three commands, a picture, their output, where to go: no more than that before the rest."""
    text = (REPO / "README.md").read_text()
    first = text.split("\n## The two commands\n")[0]
    assert first.count("](") - first.count("![") <= 8 and first.count("![") == 1
    lines = first.splitlines()
    assert len(lines) <= 56 and first.index("bin/arraysim counters") < first.index("![") < first.index("    $ ")
    assert sum(line.startswith("    ") for line in lines) <= 3 + 15, "three commands and some twelve lines of output"
    assert first.count("\n", 0, first.index("![")) < 20, "the picture is in view without scrolling"
    for command in ("make run", "make test"):
        assert f"`{command}`" in text
    go = re.search(r"^go (\d+\.\d+)", (REPO / "go.mod").read_text(), re.MULTILINE)
    assert go and f"Go {go[1]} or newer" in first


def test_comparison_bites() -> None:
    shown = ["HEAD  UNDERCOVER", "    1.0  clone  0.0  16.2", "...", "It wrote 157 MiB.", "A write took 1.0 ms."]
    real = "x\nHEAD   UNDERCOVER\n    3.0  clone  0.1  99\n    4.0  clone  0.1  99\ny\n"
    real += "It wrote 157 MiB.\nA write took 7.5 ms.\n"
    assert not differences(shown, real)
    for old, new in (("UNDERCOVER", "HIDDEN"), ("157", "158"), ("clone", "after"), ("A write", "One write")):
        assert differences(shown, real.replace(old, new)), new
    rows = [
        "    1.0  before  0.4  9.9        0 %",
        "    5.0  clone   0.0  17.0      100 %",
        "    6.0  clone   0.0  16.8  1 %",
    ]
    assert clone_rates(rows) == [17.0, 16.8] and shows_undercover(rows)
    assert not shows_undercover([row.replace("17.0", "0.0").replace("16.8", "0.0") for row in rows])
    assert not shows_undercover(rows[:1])


def test_picture_is_current(tmp_path: Path) -> None:
    """The picture of README.md is what these commands draw: the run is the same on any machine."""
    out, svg = tmp_path / "out", tmp_path / "svg"
    scenario = REPO / "testdata/scenarios/clone-beside-writes.yaml"
    run([binary(), "sim", scenario, "--record", "10s", "--out", out], timeout=300)
    run([binary(), "report", out / "counters.parquet", "--out", tmp_path / "r.html", "--svg", svg])
    drawn, kept = svg / "holders-1.svg", REPO / "docs/pictures/clone-beside-writes.svg"
    assert "docs/pictures/clone-beside-writes.svg" in (REPO / "README.md").read_text()
    assert ET.parse(kept).getroot().tag.endswith("svg")
    assert drawn.read_bytes() == kept.read_bytes(), f"{kept} is not current: copy {drawn} there"


def test_first_session(tmp_path: Path) -> None:
    (block,) = (b for b in blocks("docs/first-session.md") if any("qemu-img" in line for line in b))
    assert len(block) > 5
    with Daemon(name="session") as d:
        script = typed([line for line in block if not line.startswith("apt-get")], d)
        script = script.replace("/tmp/disk.img", str(tmp_path / "disk.img"))
        out = run(["bash", "-euo", "pipefail", "-c", script], timeout=300).stdout
    assert "Images are identical." in out
    # Hosts wrote the image once; the clone cost as much again, below.
    assert re.search(r"^vol2 +silver .* 256 MiB ", out, re.MULTILINE), out
    assert re.search(r"^clone +silver +\S+ \S+ +\S+ \S+ +\S+ \S+ +256 MiB ", out, re.MULTILINE), out
