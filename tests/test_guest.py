"""What guests are run with, as far as it needs no guest: waits, the process of targetcli, processors."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest
from harness import REPO, ToolError, run


@pytest.fixture(scope="module")
def guest() -> Iterator[ModuleType]:
    """The module, whose neighbours have names that others have here."""
    spec = importlib.util.spec_from_file_location("guest", REPO / "tests" / "vm" / "guest.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["guest"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["guest"]


def test_a_stopped_guest_goes_on_waiting(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes in which the machine gave the guest no time are not ten minutes in which a service did not come."""
    real, jumps = time.monotonic, itertools.count(step=600)
    # Each tick counts as two seconds: the looks below have sixty of them.
    monkeypatch.setattr(guest.Given, "TICK", 0.05)
    monkeypatch.setattr(guest.time, "monotonic", lambda: real() + next(jumps))
    looks = iter([None, None, None, "service"])
    assert guest.wait("service", lambda: next(looks), timeout=120) == "service"


def test_a_wait_ends(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes ends the wait, by the time that the guest was given."""
    monkeypatch.setattr(guest.Given, "TICK", 0.01)
    with pytest.raises(ToolError, match=r"^no service after 0.1 s. said before$"):
        guest.wait("service", lambda: None, timeout=0.1, said="said before")


def test_given_counts_what_was_given(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick counts as long as it took, and as two seconds if it came later than that."""
    given = guest.Given()
    times = iter([0.0, 1.0, 1.5, 500.0, 501.0])
    monkeypatch.setattr(guest.time, "monotonic", lambda: next(times))
    ticks = iter([False] * 4 + [True])
    monkeypatch.setattr(given.over, "wait", lambda _seconds: next(ticks))
    given.run()
    assert given.seconds == 1.0 + 0.5 + 2.0 + 1.0


def test_a_disk_is_there_when_it_can_be_opened(guest: ModuleType, tmp_path: Path) -> None:
    """The kernel shows it in sysfs before its file and its queue are there."""

    class Disk(guest.Disk):  # type: ignore[misc,name-defined]
        sysfs = tmp_path

    disk = Disk("0:0:0:0")
    (tmp_path / "scsi_generic" / "no such device").mkdir(parents=True)
    (tmp_path / "block" / "null").mkdir(parents=True)
    assert disk._node("scsi_generic") is None and disk._node("block") is None
    (tmp_path / "scsi_generic" / "zero").mkdir()
    (tmp_path / "block" / "null" / "bdi").mkdir()
    assert (disk.sg, disk.sd) == ("/dev/zero", "/dev/null")


#: A program that tells what it was given, and ends as it is told.
PROGRAM = """\
import sys

called = 0


def main():
    global called
    called += 1
    print("call", called, sys.argv[1:], sys.stdin.read())
    print("complaint", file=sys.stderr)
    if "raise" in sys.argv:
        raise ValueError("raised")
    sys.exit(next((int(a) for a in sys.argv if a.isdigit()), None))
"""


@pytest.fixture
def targetcli(guest: ModuleType, tmp_path: Path) -> Iterator[ModuleType]:
    """A process that runs this program."""
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    served = guest.Targetcli(os.environ | {"TARGETCLI": str(program)})
    yield served
    served.proc.kill()
    served.proc.wait()


def test_calls_of_one_process(targetcli: ModuleType) -> None:
    """Each has its own arguments, input, outputs and status, whatever the one before it did."""
    for n, (arguments, stdin, status) in enumerate(
        [(["a b", ""], b"x", 0), (["3"], b"", 3), (["raise"], b"", 1), (["last"], b"y" * 100000, 0)], 1
    ):
        r = targetcli.run(arguments, stdin, 60, status)
        assert r.stdout == f"call {n} {arguments} {stdin.decode()}\n"
        assert r.stderr.startswith("complaint\n") and ("ValueError: raised" in r.stderr) == ("raise" in arguments)
    with pytest.raises(ToolError, match=r"expected exit code 0:\n\$ targetcli 4\ncall 5"):
        targetcli.run(["4"], b"", 60, 0)


def test_guests_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """One processor each where they use one, the one that fewest others have."""
    monkeypatch.syspath_prepend(REPO / "scripts" / "vm")
    from engines import Qemu, Uml
    from machine import processor

    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {2, 5})
    with ExitStack() as stack:
        taken = [stack.enter_context(processor(Uml)) for _ in range(3)]
        assert taken == [2, 5, 2]
        assert stack.enter_context(processor(Qemu)) is None
        assert stack.enter_context(processor(Uml)) == 5
    with processor(Uml) as first:
        assert first == 2


#: Reads the first bytes of a stopped child's registers, sets these, and prints what each call answered.
REGISTERS = """
import ctypes, os, signal, sys
TRACEME, GET, SET, XSTATE = 0, 0x4204, 0x4205, 0x202
libc = ctypes.CDLL(None, use_errno=True)
class Area(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
def call(request, data=None):
    answer = libc.ptrace(request, child, ctypes.c_void_p(XSTATE), data)
    return ctypes.get_errno() if answer else 0
child = 0
if not (pid := os.fork()):
    call(TRACEME)
    os.kill(os.getpid(), signal.SIGSTOP)
child = pid
os.waitpid(child, 0)
room = ctypes.create_string_buffer(1 << 16)
def area(size):
    return ctypes.byref(Area(ctypes.addressof(room), size))
whole = Area(ctypes.addressof(room), len(room))
print(call(GET, ctypes.byref(whole)), whole.len > 576)
room[512:520] = bytes([3, 0, 0, 0, 0, 0, 0, 0])  # XSTATE_BV: those of x87 and SSE
room[160:176] = bytes(range(16))  # XMM0
print(call(SET, area(576)))
room[160:176] = bytes(16)
print(call(GET, ctypes.byref(whole)), room[160:176] == bytes(range(16)), room.raw[512] & 3)
print(call(SET, area(whole.len)), call(12345))
os.kill(child, signal.SIGKILL)
"""


def test_registers_that_the_guests_kernel_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the processor has more of them than a caller keeps, those that it keeps are set."""
    monkeypatch.syspath_prepend(REPO / "scripts" / "vm")
    from engines import xstate

    def said(**environment: str) -> str:
        return run([sys.executable, "-c", REGISTERS], env=environment).stdout

    assert said(LD_PRELOAD=str(xstate())) == f"0 True\n0\n0 True 3\n0 {errno.EIO}\n"
    assert said().startswith(f"0 True\n{errno.EFAULT}\n"), "the host takes a part: nothing was shown"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("collected 9 items / 9 deselected / 0 selected\n===== 9 deselected in 0.1s =====\n", 5),
        ("collected 0 items\n===== no tests ran in 0.1s =====\n", 124),
    ],
    ids=["left out", "none"],
)
def test_a_guest_without_a_test_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, status: int
) -> None:
    """A selection may leave nothing of a file; a file without any test is a mistake, and was taken for all right."""
    monkeypatch.syspath_prepend(REPO / "scripts" / "vm")
    import run as vm

    output = tmp_path / "output.log"
    output.write_text(said)
    jobs = [vm.Job("test_full", "", status=0, counts={"passed": 1}), vm.Job("test_empty", "", status=vm.NO_TESTS)]
    jobs[1].judge(output)
    assert jobs[1].status == status
    run = vm.Run.__new__(vm.Run)
    run.dir = REPO / "results"
    assert vm.summary(jobs, run, 0, "uml") == (0 if status == 5 else status)
    assert ("1 failed" in capsys.readouterr().out) == (status != 5)


def test_a_kernel_log_with_a_gap_is_trouble(guest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that nobody could read any more may have been the trouble."""
    log = guest.KernelLog.__new__(guest.KernelLog)
    log.allowed = [*log.NORMAL, "reset"]
    for lines, bad in (
        (["1.000: sd 0:0:0:0: reset"], []),
        (["1.000: sd 0:0:0:0: I/O error"], ["1.000: sd 0:0:0:0: I/O error"]),
        (["1.000: sd 0:0:0:0: reset", log.LOST], [log.LOST]),
    ):
        monkeypatch.setattr(log, "read", lambda lines=lines: lines)
        assert log.trouble() == bad
