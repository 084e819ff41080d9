"""docs/targetcli.md is what targetcli and its neighbours say: every command of it is typed, every answer compared.

A difference leaves the document as it would be right in the results, as targetcli.md.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guest import RESULTS, Initiator, Targetcli, clear_targets, wait
from harness import REPO, ToolError, run

DOCUMENT = REPO / "docs" / "targetcli.md"

ARRAY = """\
pools:
  - name: gold
    copy: reference
    mdisks: [{ name: m0, size: 8GiB }]
  - name: silver
    copy: data
    mdisks: [{ name: m0, size: 8GiB }]
volumes: []
"""

#: What depends on the terminal's width, on other users of the machine, or on the hour.
VARIES = [
    (r"\.{4,}", "...."),
    (r"(?m)^Warning: Could not load preferences file.*\n", ""),
    (r"\[sid: \d+,", "[sid: 1,"),
    (r"\[sid: \d+\]", "[sid: 1]"),
    (r"(?m)[ \t]+$", ""),
    (r"\n{2,}", "\n"),  # an empty line ends the output
    (r"device=tcm-user/\d+/", "device=tcm-user/0/"),
    (r"\x1b\[[0-9;]*m", ""),
]

END = "--end of command--"

#: targetcli for the shell, in the process that targetcli_server.py describes: nearly all that a start of the
#: program takes is the import of its modules, and the document has two dozen of them. The output is one file, as the
#: shell's is one pipe.
SERVED = """targetcli() {{
    : >'{folder}/said'
    printf '%s\\0' $(($# + 3)) /dev/null '{folder}/said' '{folder}/said' "$@" >'{folder}/requests'
    local status; read -r status <'{folder}/replies'
    cat '{folder}/said'
    return $status
}}"""


class Shell:
    """One bash for all commands, with job control, as a terminal's is."""

    def __init__(self, folder: Path) -> None:
        self.env = os.environ | {"COLUMNS": "120", "TERM": "dumb"}
        self.proc = subprocess.Popen(
            ["bash", "--norc", "-m"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env=self.env,
        )

    def type(self, command: str) -> str:
        """Run a command and return what it printed."""
        assert self.proc.stdin and self.proc.stdout
        self.proc.stdin.write(f"{{ {command}\n}} 2>&1 </dev/null; echo; echo '{END}'\n")
        self.proc.stdin.flush()
        out = ""
        for line in self.proc.stdout:
            if line.rstrip("\n") == END:
                return out.removesuffix("\n").strip("\n")
            out += line
        raise ToolError(f"the shell ended at: {command}")


def steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the document's pieces: ("", lines of prose) or (command, lines of its output)."""
    command, lines = "", []
    for line in text.splitlines():
        if line.startswith("    # "):
            yield command, lines
            command, lines = line[6:], []
        elif command and not line.startswith("    "):
            yield command, lines
            command, lines = "", [line]
        else:
            lines.append(line)
    yield command, lines


def disks() -> int:
    """Return the number of the machine's SCSI disks."""
    return len(list(Path("/sys/bus/scsi/drivers/sd").glob("*:*")))


def readable() -> int:
    """Return the number of SCSI disks that programs find: a disk has its driver before the kernel has read its size."""
    sizes = Path("/sys/block").glob("sd*/size")
    return sum(s.read_text().strip() != "0" and Path("/dev", s.parent.name).exists() for s in sizes)


def served() -> bool:
    """Report whether targetcli would find somebody."""
    bus = ["dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]
    return "true" in run([*bus, "org.freedesktop.DBus.NameHasOwner", "string:org.kernel.TCMUService1"]).stdout


#: What a person sees to before the next command: pattern of a command, what is there then.
SETTLES: list[tuple[str, str, Callable[[], object]]] = [
    (r"^kill", "end of the service", lambda: not served()),
    (r"/loopback/.* create", "disk", lambda: readable() == 1),
    (r"/loopback delete", "end of the disk", lambda: disks() == 0),
    (r"--login$", "disks", lambda: readable() == 2),
    (r"--logout$", "end of the disks", lambda: disks() == 0),
    (r"--rescan$", "new size", lambda: Path("/sys/block/sdb/size").read_text().strip() == str(2 << 21)),
]


def wait_served(shell: Shell, said: str) -> None:
    """Wait until the service that the shell has just started is there; one that has ended does not come any more."""

    def look() -> bool:
        if served():
            return True
        if not shell.type("jobs -r"):
            raise ToolError(f"the service has ended: {shell.type('wait %1; echo exit status $?')}\n{said}")
        return False

    try:
        wait("service", look, said=said)
    except ToolError as e:
        raise ToolError(f"{e}\n{shell.type('ps -eo pid,stat,wchan:30,etimes,time,args')}") from None


def test_targetcli_document(lio: None, initiator: Initiator) -> None:
    folder = Path("/srv/document")
    folder.mkdir()
    (folder / "array.yaml").write_text(ARRAY)
    if disks():
        pytest.fail("other tests have left disks; the document would not find its own")
    text = DOCUMENT.read_text()
    shell, fresh = Shell(folder), []
    server: Targetcli | None = None
    try:
        for command, lines in steps(text):
            if not command:
                fresh += lines
                continue
            answer = shell.type(command)
            if command.startswith("targetcli ") and not server:
                # The first one was the program as a person starts it.
                server = Targetcli(shell.env)
                shell.type(SERVED.format(folder=server.folder))
            for pattern, replacement in VARIES:
                answer = re.sub(pattern, replacement, answer)
            fresh += [f"    # {command}", *(f"    {line}".rstrip() for line in answer.splitlines())]
            if re.search(r"serve .*&$", command):
                wait_served(shell, command)
            for pattern, what, there in SETTLES:
                if re.search(pattern, command):
                    wait(what, there, said=f"{command}\n{answer}")
            if command.startswith("kill"):
                shell.type("wait")
    except ToolError as e:
        log = folder / "array.log"
        raise ToolError(f"{e}\nThe array's log:\n{log.read_text() if log.exists() else '(none)'}") from None
    finally:
        # A test that fails in the middle leaves nothing to the others.
        shell.type("kill -9 %1; wait")
        clear_targets()
        run(["iscsiadm", "-m", "node", "-o", "delete"], expect=None)
    after = "\n".join([*fresh, ""])
    (RESULTS / DOCUMENT.name).write_text(after)
    changed = [f"- {a}\n+ {b}" for a, b in zip(text.splitlines(), after.splitlines(), strict=False) if a != b]
    assert after == text, f"{DOCUMENT.name} says otherwise; {RESULTS / DOCUMENT.name} is right:\n" + "\n".join(
        changed[:8]
    )
