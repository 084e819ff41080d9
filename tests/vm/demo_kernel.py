#!/usr/bin/env python3
"""The main job of scripts/demo.py, over TCMU: targetcli makes the LUNs, the kernel's own iSCSI initiator uses them.

    scripts/vm/run.py --file IMAGE --command 'python3 tests/vm/demo_kernel.py files/NAME'

An image is written to LUN 0, cloned to LUN 1 by EXTENDED COPY and to LUN 2 by reading and writing; LUN 3, which held
a copy too, is zeroed by WRITE SAME. All of it is read back and compared; a table shows both layers.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "scripts")]
from arrays import NEARLY_NOTHING, sha256  # noqa: E402
from demo import BLOCKS_A_COMMAND, Step, measure, show_steps  # noqa: E402
from doors import LIO_TARGET, KernelDaemon, backstore, exported, settle  # noqa: E402
from guest import Disk, Initiator, clear_targets, targetcli  # noqa: E402
from harness import Config, MiB, Pool, Volume, run  # noqa: E402


def copy(source: str | Path, target: str) -> None:
    """Copy a whole image past the page cache."""
    flags = [] if isinstance(source, Path) else ["iflag=direct"]
    run(["dd", f"if={source}", f"of={target}", "bs=1M", "oflag=direct", *flags, "status=none"], timeout=600)


def digest(device: str) -> str:
    """Return the digest of a device, from the device and not from the page cache."""
    with os.fdopen(os.open(device, os.O_RDONLY), "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return hashlib.file_digest(f, "sha256").hexdigest()


def job(array: KernelDaemon, disks: list[Disk], image: Path) -> list[Step]:
    """Carry out the four steps and verify them."""
    original, clone, copied, zeroed = disks
    size = image.stat().st_size
    blocks = size // 512
    copy(image, zeroed.sd)
    xcopy = ["sg_xcopy", f"if={original.sg}", f"of={clone.sg}", "bs=512", f"count={blocks}", f"bpt={BLOCKS_A_COMMAND}"]
    same = ["sg_write_same", "--16", "--lba=0", f"--num={blocks}", zeroed.sg]
    steps = [
        measure(array, "image -> LUN 0, host writes", lambda: copy(image, original.sd)),
        measure(array, "LUN 0 -> LUN 1, EXTENDED COPY", lambda: run(xcopy, timeout=600)),
        measure(array, "LUN 0 -> LUN 2, host copy", lambda: copy(original.sd, copied.sd)),
        measure(array, "LUN 3 zeroed, WRITE SAME", lambda: run(same, timeout=600)),
    ]
    want = sha256(image)
    for disk in (original, clone, copied):
        assert digest(disk.sd) == want, f"LUN {disk.lun} differs from the image"
        run(["e2fsck", "-fn", disk.sd], timeout=600)
    assert digest(zeroed.sd) == hashlib.sha256(bytes(size)).hexdigest(), "LUN 3 is not zero"
    array.cli("check")
    return steps


def main() -> None:
    """Run it and print the table."""
    image = Path(sys.argv[1])
    size = image.stat().st_size
    os.environ["ARRAYSIM_SHM"] = "/srv"  # the image may be larger than the guest's memory
    for module in ("target_core_user", "iscsi_target_mod"):
        run(["modprobe", module])
    names = ["original", "clone", "copied", "zeroed"]
    with Initiator() as initiator, KernelDaemon(Config(pools=[Pool("p0")], volumes=[]), "demo") as array:
        targetcli(*[backstore(Volume(n, None, size=size)) for n in names])
        print(f"Image: {image.name}, {size / MiB:.0f} MiB, ext4. All figures in MiB.\n")
        with exported(names), initiator.session("127.0.0.1:3260", LIO_TARGET, len(names)) as session:
            disks = session.disks()
            settle(disks)
            steps = job(array, disks, image)
        clear_targets()
    show_steps(steps)
    print("\nRead back: LUN 0, 1 and 2 equal the image byte for byte, e2fsck finds them clean; LUN 3 is zeros.")
    clone, zero = steps[1], steps[3]
    for step in (clone, zero):
        assert step.wire <= 4 * NEARLY_NOTHING and not step.cache and not step.backend, step


if __name__ == "__main__":
    main()
