"""Data on disks of the guest: noise, file systems, fio."""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import subprocess
from functools import cache
from pathlib import Path

from harness import KiB, MiB, ToolError, run

#: Noise is 33 MiB: 256 different contents of up to 32 MiB begin in it, 4 KiB apart.
NOISE_SIZE = 33 * MiB


def memory(size: int) -> mmap.mmap:
    """Return memory that begins at a page, all of it there at once: for a guest each page fault is dear."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


@cache
def noise() -> memoryview:
    """Return the noise: each MiB is the first, turned by no whole number of sectors, so that no two are alike."""
    first, whole = random.Random(1).randbytes(MiB), memory(NOISE_SIZE)
    for n in range(NOISE_SIZE // MiB):
        whole.write(first[n * 12347 :])
        whole.write(first[: n * 12347])
    return memoryview(whole).toreadonly()


def fill(device: str, size: int, seed: int = 0) -> memoryview:
    """Write noise, one of 256 kinds, to the start of a device, past the page cache; return it."""
    skip = seed % 256 * 4 * KiB
    data = noise()[skip : skip + size]
    fd = os.open(device, os.O_WRONLY | os.O_DIRECT)
    try:
        for at in range(0, size, MiB):
            piece = data[at : at + MiB]
            assert os.pwrite(fd, piece, at) == len(piece)
    finally:
        os.close(fd)
    return data


def content(device: str, size: int, offset: int = 0) -> memoryview:
    """Read from a device past the page cache."""
    data = memoryview(memory(size))
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        for at in range(0, size, MiB):
            piece = data[at : at + MiB]
            assert os.preadv(fd, [piece], offset + at) == len(piece)
    finally:
        os.close(fd)
    return data


def sha(*paths: Path) -> list[str]:
    """Return the digests of files, read from the device and not from the page cache."""
    run(["sync"])
    Path("/proc/sys/vm/drop_caches").write_text("3")
    out = []
    for path in paths:
        with path.open("rb") as f:
            out.append(hashlib.file_digest(f, "sha256").hexdigest())
    return out


def mkfs(kind: str, device: str) -> None:
    """Make a file system, whatever was there."""
    run(["mkfs." + kind, "-q", "-F" if kind == "ext4" else "-f", device], timeout=240)


def fsck(kind: str, device: str) -> None:
    """Check a file system that is not mounted; any finding is a failure."""
    run(["fsck.ext4", "-fn", device] if kind == "ext4" else ["xfs_repair", "-n", device], timeout=240)


#: Arguments of fio: all sizes of a page cache's writes, and any number of blocks at any block.
VERIFIED = ["--rw=randwrite", "--bsrange=4k-256k", "--verify=crc32c", "--verify_fatal=1"]
ODD = ["--rw=randwrite", "--bssplit=512/20:1536/20:11776/20:65024/20:307712/20", "--blockalign=512"]
ODD += ["--verify=crc32c", "--verify_fatal=1"]


class Load:
    """fio in the background."""

    def __init__(self, name: str, *args: str) -> None:
        self.argv = ["fio", f"--name={name}", "--thread", *args]
        self.proc = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, timeout: float = 600) -> str:
        """Wait for its end, which must be a good one; return what it printed."""
        try:
            out, _ = self.proc.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise ToolError(f"fio did not end within {timeout:g} s: {' '.join(self.argv)}") from None
        if self.proc.returncode != 0:
            raise ToolError(f"fio ended with {self.proc.returncode}: {' '.join(self.argv)}\n{out}")
        return out


def on_disk(device: str, *args: str, depth: int = 32) -> list[str]:
    """Return fio's arguments for a device, past the page cache."""
    return [f"--filename={device}", "--direct=1", "--ioengine=libaio", f"--iodepth={depth}", *args]


def fio(device: str, name: str, *args: str) -> str:
    """Run fio on a device, past the page cache, to its end."""
    return Load(name, *on_disk(device, *args)).finish()
