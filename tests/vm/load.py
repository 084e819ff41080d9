"""Data on disks of the guest: noise, file systems, fio."""

from __future__ import annotations

import hashlib
import random
import subprocess
from pathlib import Path

from harness import KiB, MiB, ToolError, run

NOISE = Path("/dev/shm/noise")


def fill(device: str, size: int, seed: int = 0) -> bytes:
    """Write noise, one of 256 kinds, to the start of a device, past the page cache; return it."""
    if not NOISE.exists():
        NOISE.write_bytes(random.Random(1).randbytes(33 * MiB))
    skip = seed % 256 * 4 * KiB
    argv = [
        "dd",
        f"if={NOISE}",
        f"of={device}",
        "bs=1M",
        f"skip={skip}",
        f"count={size}",
        "oflag=direct",
        "conv=notrunc",
    ]
    run([*argv, "iflag=skip_bytes,count_bytes,fullblock", "status=none"])
    return NOISE.read_bytes()[skip : skip + size]


def content(device: str, size: int, offset: int = 0) -> bytes:
    """Read from a device past the page cache."""
    argv = ["dd", f"if={device}", "bs=1M", f"skip={offset // MiB}", f"count={size // MiB}", "iflag=direct"]
    return run([*argv, "status=none"], timeout=120).raw


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
