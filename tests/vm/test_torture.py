"""File systems on LUNs over TCMU under many kinds of load at once, while the daemon is killed again and again."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doors import KernelDaemon, backstore, looped
from guest import clear_targets, mounted
from harness import MiB, ToolError, Volume, run
from load import fsck, mkfs

# The processor is busy for a minute, and test_tcmu and test_portal kill the daemon under file systems, too.
pytestmark = pytest.mark.slow

NAA = "naa.5001405000000040"

#: Kills of the daemon; `make vm-torture` sets more.
KILLS = int(os.environ.get("ARRAYSIM_KILLS", "3"))
SEED = int(os.environ.get("ARRAYSIM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

#: Stressors of stress-ng that work at names, at data, and at both.
STRESSORS = [
    ["dir", "dentry", "rename", "link", "symlink"],
    ["hdd", "fallocate", "iomix", "sync-file"],
    ["chmod", "fiemap", "getdent", "xattr", "utime", "readahead"],
]
SIZES = ["hdd", "fallocate", "iomix", "sync-file", "readahead"]


@pytest.fixture
def array(lio: None) -> Iterator[KernelDaemon]:
    with KernelDaemon(name="torture") as d:
        yield d
        clear_targets()


def stress(folder: Path, names: list[str], seconds: int) -> list[str]:
    """Return the command line of some stressors, one process each, that verify what they read."""
    argv = ["stress-ng", "--temp-path", str(folder), "--timeout", f"{seconds}s", "--verify", "--oomable", "--quiet"]
    for name in names:
        argv += ["--" + name, "1"]
    for name in set(SIZES) & set(names):
        argv += [f"--{name}-bytes", "16m"]
    return argv


def marks(folder: Path) -> list[str]:
    """Return the command line of fs_mark: files by four threads, each synced."""
    return ["fs_mark", "-d", str(folder), "-n", "100", "-s", "8192", "-t", "4", "-S", "1"]


def verified(folder: Path) -> list[str]:
    """Return the command line of fio: ten jobs, all that they wrote is read back and compared."""
    argv = [
        "fio",
        "--name=verified",
        f"--directory={folder}",
        "--thread",
        "--numjobs=10",
        "--size=3m",
        "--group_reporting",
    ]
    argv += ["--ioengine=libaio", "--iodepth=8", "--rw=randwrite", "--bsrange=4k-64k", "--fsync=32"]
    return [*argv, "--verify=crc32c", "--verify_fatal=1", "--unlink=1"]


class Worker(threading.Thread):
    """Repeats a command until it is told to stop, or the command fails."""

    def __init__(self, command: Callable[[], list[str]]) -> None:
        super().__init__(daemon=True)
        self.command, self.rounds = command, 0
        self.failure: ToolError | None = None
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        """Work."""
        while not self.over.is_set() and not self.failure:
            try:
                run(self.command(), timeout=900)
                self.rounds += 1
            except ToolError as e:
                self.failure = e

    def finish(self) -> None:
        """End after the present round; a failure is raised here."""
        self.over.set()
        self.join(900)
        assert not self.is_alive(), "the load does not end"
        if self.failure:
            raise self.failure


def test_file_systems_under_kills(array: KernelDaemon) -> None:
    """xfs and ext4: no load fails, no file system is damaged, the initiator logs no error (see kernel_log)."""
    rng = random.Random(SEED)
    print(f"{KILLS} kills, seed {SEED}: repeat with --env ARRAYSIM_SEED={SEED}", flush=True)
    kinds = ["xfs", "ext4"]
    stores = [backstore(Volume(kind, None, size=512 * MiB)) for kind in kinds]
    # The commands of a dead daemon wait 30 s, which its start may take when the machine is busy with other things.
    stores += [f"/backstores/user:array/{kind} set attribute cmd_time_out=300" for kind in kinds]
    with looped(NAA, kinds, *stores) as disks:
        for kind, disk in zip(kinds, disks, strict=True):
            mkfs(kind, disk.sd)
        with (
            mounted(disks[0].sd, Path("/srv/xfs")) as xfs,
            mounted(disks[1].sd, Path("/srv/ext4"), "-o", "discard") as ext4,
        ):
            workers = []
            for folder in (xfs, ext4):
                for name in ("stress", "marks", "verified"):
                    (folder / name).mkdir()
                workers += [
                    Worker(lambda f=folder: stress(f / "stress", rng.choice(STRESSORS), 5)),
                    Worker(lambda f=folder: marks(f / "marks")),
                    Worker(lambda f=folder: verified(f / "verified")),
                ]
            for n in range(KILLS):
                time.sleep(rng.uniform(1, 5))
                array.kill()
                time.sleep(rng.uniform(0, 2))
                array.start()
                print(f"{n + 1} of {KILLS} kills", flush=True)
            for w in workers:
                w.over.set()
            for w in workers:
                w.finish()
            print("rounds of stress-ng, fs_mark, fio on xfs and ext4:", *[w.rounds for w in workers])
            assert all(w.rounds for w in workers)
            run(["fstrim", xfs])
        for kind, disk in zip(kinds, disks, strict=True):
            fsck(kind, disk.sd)
    array.cli("check")
