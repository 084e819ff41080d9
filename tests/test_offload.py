"""sg3_utils: WRITE SAME, UNMAP, GET LBA STATUS, COMPARE AND WRITE, with data and counters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from arrays import (
    HUGE,
    NATIVE_4K,
    NEARLY_NOTHING,
    PEER,
    THICK,
    THIN,
    Delta,
    block_size,
    destaged,
    noise,
    read,
    same,
    write,
)
from harness import Daemon, TiB

ILLEGAL_REQUEST, MISCOMPARE, OUT_OF_RANGE = 5, 14, 22
MAPPED, DEALLOCATED, ANCHORED = 0, 1, 2


def statuses(array: Daemon, lun: int, lba: int) -> list[tuple[int, int, int]]:
    """Return (LBA, blocks, provisioning status) from GET LBA STATUS."""
    out = array.sg("sg_get_lba_status", f"--lba={lba}", "--maxlen=520", "--brief", f"/dev/sg{lun}").stdout
    found = re.findall(r"^0x([0-9a-f]{16})\s+0x([0-9a-f]+)\s+(\d+)", out, re.M)
    assert found, out
    return [(int(a, 16), int(n, 16), int(s)) for a, n, s in found]


ZEROING = {
    "10": (["--10"], THIN),
    "16": (["--16"], THIN),
    "32": (["--32"], THIN),
    "32-unmap": (["--32", "--unmap"], THIN),
    "32-ndob": (["--32", "--ndob"], THIN),
    "32-4kn": (["--32"], NATIVE_4K),
    "16-unmap": (["--16", "--unmap"], THIN),
    "10-unmap": (["--10", "--unmap"], THIN),
    "16-ndob": (["--16", "--ndob"], THIN),
    "16-ndob-unmap": (["--16", "--ndob", "--unmap"], THIN),
    "16-anchor": (["--16", "--unmap", "--anchor"], THIN),
    "10-4kn": (["--10"], NATIVE_4K),
    "16-4kn-ndob": (["--16", "--ndob"], NATIVE_4K),
    "16-4kn": (["--16"], NATIVE_4K),
    "16-thick": (["--16"], THICK),
}


@pytest.mark.parametrize("case", ZEROING)
def test_write_same_of_zeros_is_a_map_edit(array: Daemon, case: str, tmp_path: Path) -> None:
    args, lun = ZEROING[case]
    bs = block_size(lun)
    base, n, lead = 4096, 4000, 13  # deliberately not aligned to anything
    data = noise(4096 * bs, seed=len(case))
    write(array, lun, base, data, tmp_path)
    d = Delta(array)
    array.sg("sg_write_same", *args, f"--lba={base + lead}", f"--num={n}", f"/dev/sg{lun}")
    d.stop()
    want = data[: lead * bs] + bytes(n * bs) + data[(lead + n) * bs :]
    same(read(array, lun, base, 4096, tmp_path), want)
    volume = {THIN: "thin", NATIVE_4K: "native", THICK: "thick"}[lun]
    assert d.wire(volume) <= NEARLY_NOTHING
    assert d.sum("host_described_bytes_total", volume=volume, op="write_same") == n * bs
    assert d.lower() == 0, "zeros must not reach the cache"
    assert d.sum("undercover_write_bytes_total") == 0
    assert d.sum("host_commands_total", volume=volume, op="write_same", status="good") == 1


@pytest.mark.parametrize("args", [["--10"], ["--16"], ["--32"]], ids=["10", "16", "32"])
def test_write_same_of_a_pattern_is_a_write(array: Daemon, args: list[str], tmp_path: Path) -> None:
    block = noise(512, seed=3)
    f = tmp_path / "pattern"
    f.write_bytes(block)
    d = Delta(array)
    array.sg("sg_write_same", *args, f"--in={f}", "--lba=20001", "--num=999", "--xferlen=512", "/dev/sg0")
    d.stop()
    same(read(array, THIN, 20001, 999, tmp_path), block * 999)
    assert d.wire("thin", "write") <= NEARLY_NOTHING
    assert d.sum("cache_admitted_bytes_total", volume="thin", origin="write_same") == 999 * 512
    assert d.sum("undercover_write_bytes_total", volume="thin", origin="write_same") == 999 * 512


def test_write_same_pattern_with_unmap_is_a_write_too(array: Daemon, tmp_path: Path) -> None:
    f = tmp_path / "pattern"
    f.write_bytes(b"\xa5" * 512)
    array.sg("sg_write_same", "--16", "--unmap", f"--in={f}", "--lba=30000", "--num=64", "--xferlen=512", "/dev/sg0")
    same(read(array, THIN, 30000, 64, tmp_path), b"\xa5" * 512 * 64)


def test_write_same_refuses_what_it_must(array: Daemon) -> None:
    array.sg("sg_write_same", "--16", "--anchor", "--lba=0", "--num=8", "/dev/sg0", expect=ILLEGAL_REQUEST)
    array.sg("sg_write_same", "--16", "--wrprotect=1", "--lba=0", "--num=8", "/dev/sg0", expect=ILLEGAL_REQUEST)
    array.sg("sg_write_same", "--16", "--lba=524287", "--num=2", "/dev/sg0", expect=OUT_OF_RANGE)


def test_whole_terabyte(array: Daemon, tmp_path: Path) -> None:
    """One command zeroes 1 TiB; it costs nothing below and answers at once."""
    last = (TiB >> 9) - 8
    for lba in (0, 123456789, last):
        write(array, HUGE, lba, noise(4096, seed=lba), tmp_path)
    destaged(array)  # nothing of what earlier tests wrote goes down while this one counts
    d = Delta(array)
    # sg_write_same cannot say 2^31 blocks, the command can: WRITE SAME(16), NDOB.
    cdb = ["93", "01", *["00"] * 8, "80", "00", "00", "00", "00", "00"]
    used = array.cpu_seconds()
    array.sg("sg_raw", f"/dev/sg{HUGE}", *cdb)
    used = array.cpu_seconds() - used
    d.stop()
    for lba in (0, 123456789, last):
        same(read(array, HUGE, lba, 8, tmp_path), bytes(4096))
    assert d.lower() == 0
    assert d.sum("backend_bytes_total", direction="write", origin="write_same") == 0
    assert d.sum("host_described_bytes_total", volume="huge", op="write_same") == TiB
    assert d.sum("host_command_duration_seconds_count", volume="huge", op="write_same") == 1
    assert used < 0.5, "20 us of a processor are enough; this only tells an edit from a terabyte of zeros"
    seconds = d.end.sum("host_command_duration_seconds_sum", volume="huge", op="write_same")
    assert seconds < 20, "what a busy machine may add; a terabyte of zeros takes minutes"
    state = array.metrics().by("state", "volume_provisioned_bytes", volume="huge")
    assert state["zero"] == TiB, state


def test_unmap_and_status(array: Daemon, tmp_path: Path) -> None:
    lun = PEER
    data = noise(1024 * 512, seed=11)
    write(array, lun, 8192, data, tmp_path)
    (lba, blocks, status), *_ = statuses(array, lun, 8192)
    assert (lba, status) == (8192, MAPPED) and blocks >= 1024
    d = Delta(array)
    array.sg("sg_unmap", "--force", "--lba=8192,8832", "--num=128,64", f"/dev/sg{lun}")
    d.stop()
    want = bytes(128 * 512) + data[128 * 512 : 640 * 512] + bytes(64 * 512) + data[704 * 512 :]
    same(read(array, lun, 8192, 1024, tmp_path), want)
    assert statuses(array, lun, 8192)[0] == (8192, 128, DEALLOCATED)
    assert statuses(array, lun, 8200)[0] == (8200, 120, DEALLOCATED), "the first descriptor starts where asked"
    assert statuses(array, lun, 8832)[0] == (8832, 64, DEALLOCATED)
    assert statuses(array, lun, 8320)[0][2] == MAPPED
    assert d.sum("host_described_bytes_total", volume="peer", op="unmap") == 192 * 512
    assert d.lower() == 0


def test_anchor(array: Daemon, tmp_path: Path) -> None:
    lun = PEER
    write(array, lun, 65536, noise(256 * 512, seed=12), tmp_path)
    array.sg("sg_unmap", "--force", "--anchor", "--lba=65536", "--num=128", f"/dev/sg{lun}")
    assert statuses(array, lun, 65536)[0][2] == ANCHORED
    same(read(array, lun, 65536, 128, tmp_path), bytes(128 * 512))


def test_zeros_without_unmap_count_as_mapped(array: Daemon) -> None:
    array.sg("sg_write_same", "--16", "--lba=100000", "--num=2048", f"/dev/sg{PEER}")
    assert statuses(array, PEER, 100000)[0][2] == MAPPED
    array.sg("sg_write_same", "--16", "--unmap", "--lba=100000", "--num=2048", f"/dev/sg{PEER}")
    assert statuses(array, PEER, 100000)[0][2] == DEALLOCATED


def test_status_beyond_the_end(array: Daemon) -> None:
    array.sg("sg_get_lba_status", "--lba=524288", "/dev/sg0", expect=OUT_OF_RANGE)


@pytest.mark.parametrize("lun", [THIN, NATIVE_4K])
def test_compare_and_write(array: Daemon, lun: int, tmp_path: Path) -> None:
    bs = block_size(lun)
    old, new, other = (noise(bs, seed=s) for s in (1, 2, 3))
    write(array, lun, 777, old, tmp_path)
    f = tmp_path / "caw"
    caw = ["sg_compare_and_write", f"--in={f}", "--lba=777", "--num=1", f"--xferlen={2 * bs}", f"/dev/sg{lun}"]
    f.write_bytes(other + new)
    array.sg(*caw, expect=MISCOMPARE)
    same(read(array, lun, 777, 1, tmp_path), old)
    f.write_bytes(old + new)
    array.sg(*caw)
    same(read(array, lun, 777, 1, tmp_path), new)
    array.sg(*caw, expect=MISCOMPARE)


def test_orwrite(array: Daemon, tmp_path: Path) -> None:
    a, b = noise(512, seed=21), noise(512, seed=22)
    write(array, THIN, 888, a, tmp_path)
    f = tmp_path / "or"
    f.write_bytes(b)
    cdb = "8b 00 00 00 00 00 00 00 03 78 00 00 00 01 00 00".split()
    array.sg("sg_raw", "--send=512", f"--infile={f}", "/dev/sg0", *cdb)
    same(read(array, THIN, 888, 1, tmp_path), bytes(x | y for x, y in zip(a, b, strict=True)))
