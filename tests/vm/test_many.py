"""A hundred LUNs over TCMU: made, exported, used all at once, taken over after a crash, removed."""

from __future__ import annotations

import mmap
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from doors import KernelDaemon
from guest import Disk, clear_targets, wait
from harness import ToolError, run

LUNS = int(os.environ.get("ARRAYSIM_LUNS", "100"))
CORE = Path("/sys/kernel/config/target/core")
PORT = Path("/sys/kernel/config/target/loopback/naa.5001405000000060")
TPG = PORT / "tpgt_1"

#: Bytes of each LUN that the test writes, and of one write.
SPAN, PIECE = 256 << 10, 32 << 10


@pytest.fixture
def array(lio: None) -> Iterator[KernelDaemon]:
    with KernelDaemon(name="many") as d:
        yield d
        clear_targets()


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    start = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - start:.1f} s")


def make(i: int) -> None:
    """Make a volume, its backstore and its LUN, past rtslib, which takes a second for each."""
    store = CORE / f"user_{500 + i}" / f"lot{i}"
    store.mkdir(parents=True)
    (store / "control").write_text(f"dev_config=array/p0/lot{i},dev_size=16777216")
    (store / "enable").write_text("1")
    (store / "attrib" / "cmd_time_out").write_text("300")  # a start may take longer than 30 s
    lun = TPG / "lun" / f"lun_{i}"
    lun.mkdir()
    (lun / "store").symlink_to(store)


def remove(i: int) -> None:
    """Remove the LUN and the backstore."""
    lun = TPG / "lun" / f"lun_{i}"
    (lun / "store").unlink()
    lun.rmdir()
    (CORE / f"user_{500 + i}" / f"lot{i}").rmdir()
    (CORE / f"user_{500 + i}").rmdir()


def disks(before: set[str]) -> list[Disk]:
    """Return the disks that came since, by LUN, when all are there."""
    new = [Disk(n) for n in set(os.listdir("/sys/bus/scsi/devices")) - before if re.fullmatch(r"\d+:\d+:\d+:\d+", n)]
    return sorted(new, key=lambda d: d.lun) if len(new) == LUNS else []


def content(lun: int, turn: int) -> bytes:
    """Return what a turn writes to a LUN."""
    return random.Random(lun * 1000 + turn).randbytes(SPAN)


def write(disk: Disk, turn: int) -> None:
    """Write the LUN's content, past the page cache."""
    want, buf = content(disk.lun, turn), mmap.mmap(-1, PIECE)
    fd = os.open(disk.sd, os.O_WRONLY | os.O_DIRECT)
    try:
        for at in range(0, SPAN, PIECE):
            buf[:] = want[at : at + PIECE]
            assert os.pwritev(fd, [buf], at) == PIECE
    finally:
        os.close(fd)


def verify(disk: Disk, turn: int) -> None:
    """Compare the LUN with what the turn wrote."""
    buf = mmap.mmap(-1, SPAN)
    fd = os.open(disk.sd, os.O_RDONLY | os.O_DIRECT)
    try:
        assert os.preadv(fd, [buf], 0) == SPAN
    finally:
        os.close(fd)
    assert buf[:] == content(disk.lun, turn), f"LUN {disk.lun} holds what it was not given"


def opened(array: KernelDaemon) -> Counter[str]:
    """Return the files that the daemon has open, each with how often, those of its folder left out.

    The metadata's database opens and closes files of its own there, whenever it likes.
    """
    assert array.proc
    names: Counter[str] = Counter()
    for f in Path(f"/proc/{array.proc.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names[os.readlink(f)] += 1
    return Counter({name: n for name, n in names.items() if not name.startswith(str(array.dir))})


def descriptors(array: KernelDaemon) -> int:
    """Return the number of files that the daemon has open."""
    return opened(array).total()


def memory(array: KernelDaemon) -> int:
    """Return the daemon's resident memory in MiB."""
    assert array.proc
    (line,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{array.proc.pid}/status").read_text())
    return int(line) >> 10


@pytest.mark.slow
def test_hundred_luns(array: KernelDaemon) -> None:
    """All LUNs work at once, go on after a crash under I/O, and leave nothing behind."""
    before, open_before = set(os.listdir("/sys/bus/scsi/devices")), opened(array)
    TPG.mkdir(parents=True)
    (TPG / "nexus").write_text("naa.5001405000000061")
    with timed(f"{LUNS} LUNs made"):
        for i in range(LUNS):
            make(i)
        luns = wait(f"{LUNS} disks", lambda: disks(before))
        for d in luns:
            d.be_patient()
    assert len({os.readlink(p) for p in Path("/sys/class/uio").iterdir()}) >= LUNS
    print(f"{descriptors(array)} files open, {memory(array)} MiB")
    with ThreadPoolExecutor(LUNS) as pool:
        with timed("written and read, all at once"):
            list(pool.map(lambda d: write(d, 1), luns))
            list(pool.map(lambda d: verify(d, 1), luns))
        with timed("killed under I/O, all taken over, written and read"):
            writes = [pool.submit(write, d, 2) for d in luns]
            time.sleep(0.3)
            array.kill()
            with timed("of that the start"):
                array.start()
            for w in writes:
                w.result(300)
            list(pool.map(lambda d: verify(d, 2), luns))
    print(f"{descriptors(array)} files open, {memory(array)} MiB")
    with timed("removed"):
        for i in range(LUNS):
            remove(i)
        (TPG / "nexus").write_text("NULL")
        TPG.rmdir()
        PORT.rmdir()
        try:
            wait("end of all rings", lambda: descriptors(array) <= open_before.total() + 2)
        except ToolError as e:
            raise ToolError(f"{e}Open before: {open_before}\nNow: {opened(array)}") from None
    listed = run(["sh", "-c", "ls /sys/class/uio | wc -l"]).stdout.strip()
    assert listed == "0", f"{listed} UIO devices are left"
    array.cli("check")
