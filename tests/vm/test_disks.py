"""What Linux does with the array's disks, the same behind every door."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import doors
import pytest
from arrays import NEARLY_NOTHING, Delta, same
from doors import VOLUMES, Door
from guest import LIO_RESET, RESULTS, Initiator, KernelLog, mounted, wait
from harness import Daemon, MiB, Volume, run
from load import ODD, VERIFIED, Load, content, fill, fio, fsck, mkfs, on_disk, sha


@pytest.fixture(scope="module")
def kernel_array(lio: None) -> Iterator[Daemon]:
    """One array for both of the kernel's doors."""
    with doors.kernel_array() as d:
        yield d


@pytest.fixture(scope="module", params=["portal", "tcmu-iscsi", "tcmu-loop"])
def door(request: pytest.FixtureRequest, initiator: Initiator) -> Iterator[Door]:
    """The array behind each of its doors, one after another."""
    if request.param == "portal":
        opened = doors.portal(initiator)
    elif request.param == "tcmu-iscsi":
        opened = doors.kernel_iscsi(request.getfixturevalue("kernel_array"), initiator)
    else:
        opened = doors.kernel_loop(request.getfixturevalue("kernel_array"))
    with opened as d:
        yield d


# What the kernel makes of our pages


@pytest.mark.parametrize("volume", VOLUMES, ids=lambda v: v.name)
def test_disk(door: Door, volume: Volume) -> None:
    disk = door[volume.name]
    assert disk.lun == volume.lun
    assert disk.size == volume.size
    assert disk.queue("logical_block_size") == str(volume.block_size)
    assert disk.block("ro") == str(int(volume.write_protect))


def test_names(door: Door) -> None:
    names = [(d.sysfs / "wwid").read_text().strip() for d in door.disks.values()]
    assert len(set(names)) == len(names) and all(n.startswith("naa.6") for n in names)


@pytest.mark.parametrize("volume", ["thin", "native"])
def test_limits(door: Door, volume: str) -> None:
    disk = door[volume]
    modes = disk.scsi_disk("provisioning_mode"), disk.scsi_disk("zeroing_mode"), disk.scsi_disk("thin_provisioning")
    assert modes == ("unmap", "writesame_16_unmap", "1")
    for limit in ("discard_max_bytes", "write_zeroes_max_bytes", "max_hw_sectors_kb", "optimal_io_size"):
        assert int(disk.queue(limit)) > 0, limit
    assert int(disk.queue("discard_granularity")) >= int(disk.queue("logical_block_size"))
    assert (disk.queue("write_cache"), disk.queue("fua"), disk.queue("rotational")) == ("write back", "1", "0")


def test_limits_are_recorded(door: Door) -> None:
    """What Linux derives goes into the results, to be read beside a real array's."""
    text = run(["lsblk", "-D"]).stdout + run(["lsblk", "-t"]).stdout
    for name, disk in door.disks.items():
        text += f"\n{name}, LUN {disk.lun}\n"
        for f in sorted([*(disk.node / "queue").iterdir(), *(disk.sysfs / "scsi_disk" / disk.address).iterdir()]):
            if f.is_file() and os.access(f, os.R_OK):
                try:
                    text += f"  {f.name} {f.read_text().strip()}\n"
                except OSError:
                    continue
    (RESULTS / f"limits-{door.name}.txt").write_text(text)
    assert "DISC-GRAN" in text


# sg3_utils through the kernel's sg driver


def test_inquiry(door: Door) -> None:
    text = run(["sg_inq", door["thin"].sg]).stdout
    assert "3PC=1" in text and "CmdQue=1" in text and "ARRAYSIM" in text


def test_every_listed_page_can_be_read(door: Door) -> None:
    pages = run(["sg_vpd", "--page=0", "--raw", door["thin"].sg]).raw[4:]
    assert set(pages) >= {0x00, 0x80, 0x83, 0x8F, 0xB0, 0xB1, 0xB2}
    for page in pages:
        assert run(["sg_vpd", f"--page=0x{page:x}", door["thin"].sg]).stdout


COMMANDS = {
    "readcap": ["sg_readcap", "--long"],
    "luns": ["sg_luns"],
    "turs": ["sg_turs"],
    "opcodes": ["sg_opcodes"],
    "modes": ["sg_modes", "--all"],
    "requests": ["sg_requests"],
    "lba-status": ["sg_get_lba_status", "--lba=0"],
    "copy-parameters": ["sg_copy_results", "--params"],
    "sync": ["sg_sync"],
    "verify": ["sg_verify", "--lba=0", "--count=128"],
    "keys": ["sg_persist", "--in", "--read-keys"],
    "full-status": ["sg_persist", "--in", "--read-full-status"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_command(door: Door, case: str) -> None:
    run([*COMMANDS[case], door["thin"].sg])


def test_reservation(door: Door) -> None:
    """Register, reserve, read both back, release, clear."""
    out = ["sg_persist", "--out", door["peer"].sg]
    run([*out, "--register", "--param-sark=0xabc"])
    run([*out, "--reserve", "--param-rk=0xabc", "--prout-type=1"])
    assert "0xabc" in run(["sg_persist", "--in", "--read-keys", door["peer"].sg]).stdout
    assert "Write Exclusive" in run(["sg_persist", "--in", "--read-reservation", door["peer"].sg]).stdout
    run([*out, "--release", "--param-rk=0xabc", "--prout-type=1"])
    run([*out, "--clear", "--param-rk=0xabc"])
    assert "0xabc" not in run(["sg_persist", "--in", "--read-keys", door["peer"].sg]).stdout


FORMS: list[list[str]] = [["--10"], ["--16"], ["--16", "--ndob"]]
FORMS += [["--32"], ["--32", "--ndob"], ["--32", "--unmap"]]
FORMS += [["--10", "--unmap"], ["--16", "--unmap"], ["--16", "--unmap", "--anchor"]]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_write_same(door: Door, form: list[str]) -> None:
    disk = door["thin"]
    had = fill(disk.sd, 2 * MiB)
    d = Delta(door.daemon)
    run(["sg_write_same", *form, "--lba=100", "--num=1000", disk.sg])
    assert d.sum("host_described_bytes_total", volume="thin", op="write_same") == 1000 * 512
    same(content(disk.sd, 2 * MiB), had[: 100 * 512], 1000 * 512, had[1100 * 512 :])


def test_write_same_of_a_pattern(door: Door, tmp_path: Path) -> None:
    disk, pattern = door["thin"], tmp_path / "pattern"
    pattern.write_bytes(os.urandom(512))
    run(["sg_write_same", "--16", f"--in={pattern}", "--xferlen=512", "--lba=0", "--num=2048", disk.sg])
    same(content(disk.sd, MiB), pattern.read_bytes() * 2048)


def test_unmap(door: Door) -> None:
    disk = door["thin"]
    had = fill(disk.sd, 2 * MiB)
    run(["sg_unmap", "--force", "--lba=1024", "--num=2048", disk.sg])
    same(content(disk.sd, 2 * MiB), had[: 512 * 1024], MiB, had[512 * 1024 + MiB :])
    status = run(["sg_get_lba_status", "--lba=1024", "--brief", disk.sg]).stdout
    assert re.search(r"^0x0*400\s+0x800\s+1", status, re.M), status


def test_compare_and_write(door: Door, tmp_path: Path) -> None:
    disk = door["thin"]
    have, f = bytes(fill(disk.sd, MiB)[:512]), tmp_path / "caw"
    f.write_bytes(have + b"\x5a" * 512)
    argv = ["sg_compare_and_write", f"--in={f}", "--lba=0", "--num=1", "--xferlen=1024", disk.sg]
    run(argv)
    assert content(disk.sd, MiB)[:512] == b"\x5a" * 512
    run(argv, expect=14)  # MISCOMPARE (sg3_utils(8), EXIT STATUS)


COPIES = {"same-unit": ("thin", "thin", 64), "two-units": ("thin", "peer", 0), "two-pools": ("thin", "other", 16)}


@pytest.mark.parametrize("tool", ["sg_xcopy", "ddpt"])
@pytest.mark.parametrize("case", COPIES)
def test_xcopy(door: Door, case: str, tool: str) -> None:
    src, dst, seek = COPIES[case]
    want = fill(door[src].sd, 16 * MiB, seed=len(case + tool))
    d = Delta(door.daemon)
    argv = [tool, f"if={door[src].sg}", f"of={door[dst].sg}", "bs=512", "count=32768", f"seek={seek * 2048}"]
    run(argv + (["iflag=xcopy", "oflag=xcopy"] if tool == "ddpt" else []), timeout=120)
    d.stop()
    assert sum(d.wire(n) for n in {src, dst}) <= NEARLY_NOTHING
    assert d.sum("host_described_bytes_total", volume=dst, op="xcopy_dst") == 16 * MiB
    same(content(door[dst].sd, 16 * MiB, seek * MiB), want)


# The block layer's own offloads


def test_discard(door: Door) -> None:
    disk = door["thin"]
    had = fill(disk.sd, 32 * MiB)
    d = Delta(door.daemon)
    run(["blkdiscard", "--offset", str(8 * MiB), "--length", str(16 * MiB), disk.sd])
    d.stop()
    assert d.sum("host_described_bytes_total", volume="thin", op="unmap") == 16 * MiB
    assert d.wire("thin", "write") <= NEARLY_NOTHING
    same(content(disk.sd, 32 * MiB), had[: 8 * MiB], 16 * MiB, had[24 * MiB :])


@pytest.mark.parametrize("volume", ["thin", "native", "thick"])
def test_zeroout(door: Door, volume: str) -> None:
    disk = door[volume]
    had = fill(disk.sd, 32 * MiB)
    d = Delta(door.daemon)
    run(["blkdiscard", "-z", "--offset", str(8 * MiB), "--length", str(16 * MiB), disk.sd])
    d.stop()
    assert d.sum("host_described_bytes_total", volume=volume, op="write_same") == 16 * MiB
    assert d.wire(volume, "write") <= NEARLY_NOTHING
    same(content(disk.sd, 32 * MiB), had[: 8 * MiB], 16 * MiB, had[24 * MiB :])


@pytest.mark.parametrize("op", ["unmap", "write_same"])
def test_whole_device(door: Door, op: str) -> None:
    """A discard and a zeroing of everything, in as few commands as the limits ask."""
    d = Delta(door.daemon)
    run(["blkdiscard", *(["-z"] if op == "write_same" else []), door["peer"].sd], timeout=120)
    d.stop()
    assert d.sum("host_described_bytes_total", volume="peer", op=op) == door["peer"].size
    assert d.sum("host_commands_total", volume="peer", op=op) <= 2


# File systems


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("volume", ["thin", pytest.param("native", marks=pytest.mark.slow)])
def test_file_system(door: Door, kind: str, volume: str, folder: Path) -> None:
    disk = door[volume]
    mkfs(kind, disk.sd)
    with mounted(disk.sd, folder):
        for i in range(4):
            (folder / f"file{i}").write_bytes(os.urandom(8 * MiB))
        kept = folder / "file1", folder / "file3"
        want = sha(*kept)
        (folder / "file0").unlink()
        (folder / "file2").unlink()
        run(["sync"])
        d = Delta(door.daemon)
        freed = run(["fstrim", "-v", folder], timeout=120).stdout
        d.stop()
        assert d.sum("host_described_bytes_total", volume=volume, op="unmap") >= 16 * MiB, freed
        assert sha(*kept) == want
    fsck(kind, disk.sd)
    with mounted(disk.sd, folder):
        assert sha(*kept) == want


def test_online_discard(door: Door, folder: Path) -> None:
    disk = door["thin"]
    mkfs("ext4", disk.sd)
    with mounted(disk.sd, folder, "-o", "discard"):
        (folder / "file").write_bytes(os.urandom(16 * MiB))
        run(["sync"])
        before = door.daemon.metrics().sum("host_described_bytes_total", volume="thin", op="unmap")

        def freed() -> bool:
            now = door.daemon.metrics().sum("host_described_bytes_total", volume="thin", op="unmap")
            return now - before >= 15 * MiB

        (folder / "file").unlink()
        run(["sync"])
        wait("discard of a deleted file", freed)
    fsck("ext4", disk.sd)


# Load


def test_verified_load(door: Door) -> None:
    fio(door["thin"].sd, "verify", *VERIFIED, "--size=64m")


def test_unaligned_load(door: Door) -> None:
    """Transfers of any number of blocks, at any block."""
    fio(door["peer"].sd, "odd", *ODD, "--size=8m")


@pytest.mark.kernel_says(r"session\d+: task \[.*\] rejected")  # the initiator holds back commands while it resets
@pytest.mark.parametrize("kind", ["--device", "--target"])
def test_reset_under_load(door: Door, kind: str, kernel_log: KernelLog) -> None:
    """The kernel's error handler resets the LUN, then the target, while I/O goes on.

    A kernel whose tcm_loop resets no targets says so each time, and no command suffers.
    """
    if door.name == "tcmu-iscsi":
        kernel_log.allow(LIO_RESET)
    able = door.name != "tcmu-loop" or kind != "--target" or loop_resets_targets()
    disk = door["thin"]
    load = Load("reset", *on_disk(disk.sd, *VERIFIED, "--size=64m"))
    for _ in range(5):
        time.sleep(0.5)
        r = run(["sg_reset", kind, disk.sg], timeout=60, expect=0 if able else 1)
        assert ("may not be available" in r.text) != able, r
    load.finish()


def loop_resets_targets() -> bool:
    """Tell whether this kernel's tcm_loop has a handler for target resets.

    Linux removed it in 2026 (and from 6.12 with a stable update, not from 6.1): it had always reset one LUN at most.
    """
    with open("/proc/kallsyms") as symbols:
        functions = {name for _, _, name, *module in map(str.split, symbols) if module == ["[tcm_loop]"]}
    assert "tcm_loop_device_reset" in functions, "no symbols of tcm_loop"
    return "tcm_loop_target_reset" in functions


@pytest.mark.slow
def test_figures(door: Door) -> None:
    """Not a benchmark: an emulated processor on a shared machine. The figures go into the results."""
    lines = []
    for name, rw, bs in ("read", "randread", "4k"), ("write", "randwrite", "4k"), ("sequential", "read", "256k"):
        out = fio(door["thin"].sd, name, f"--rw={rw}", f"--bs={bs}", "--size=64m", "--time_based", "--runtime=2")
        found = re.search(r"IOPS=([\d.k]+), BW=(\S+)", out)
        assert found, out
        lines.append(f"{door.name} {rw} {bs}: {found[1]} IOPS, {found[2]}")
    with (RESULTS / "figures.txt").open("a") as f:
        f.write("\n".join([*lines, ""]))
