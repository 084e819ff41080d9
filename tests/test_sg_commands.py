"""sg3_utils: what a unit says about itself, and plain reads and writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from arrays import HUGE, NATIVE_4K, PROTECTED, REMOVABLE, STANDARD, THICK, THIN, noise, read, same, write
from harness import Daemon

LUNS = [v.lun for v in STANDARD.volumes]

# Exit codes of sg3_utils (sg3_utils(8), EXIT STATUS).
NOT_READY, DATA_PROTECT, MISCOMPARE, OUT_OF_RANGE = 2, 7, 14, 22


def test_inquiry_is_alike_for_all_units(array: Daemon) -> None:
    seen = set()
    for lun in LUNS:
        out = array.sg("sg_inq", f"/dev/sg{lun}").stdout
        assert "3PC=1" in out and "PDT=0" in out
        assert f"RMB={int(lun == REMOVABLE)}" in out
        seen.add(tuple(re.findall(r"(?:Vendor|Product) identification: *(.*?) *$", out, re.M)))
    assert len(seen) == 1, "initiators refuse to copy between different products"


PAGES = {
    0x00: "Supported VPD pages",
    0x80: "Unit serial number",
    0x83: "Device [Ii]dentification",
    0x86: "Extended INQUIRY",
    0x8F: "Third party copy",
    0xB0: "Block limits",
    0xB1: "Block device characteristics",
    0xB2: "Logical block provisioning",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p:02x}")
def test_vpd_page(array: Daemon, page: int) -> None:
    for lun in (THIN, NATIVE_4K, THICK):
        assert re.search(PAGES[page], array.sg("sg_vpd", f"--page={page:#x}", f"/dev/sg{lun}").stdout, re.I)


def test_vpd_pages_are_those_listed(array: Daemon) -> None:
    raw = array.sg("sg_vpd", "--page=0", "--raw", "/dev/sg0").raw
    assert list(raw[4 : 4 + raw[3]]) == sorted(PAGES)


def test_names_are_unique(array: Daemon) -> None:
    names = [re.findall(r"0x6[0-9a-f]{31}\b", array.sg("sg_vpd", "-p", "di", f"/dev/sg{n}").stdout) for n in LUNS]
    assert all(names), "every unit has an NAA-6 name"
    assert len({n[0] for n in names}) == len(LUNS)
    serials = {array.sg("sg_vpd", "-p", "sn", f"/dev/sg{n}").stdout for n in LUNS}
    assert len(serials) == len(LUNS)


def test_provisioning_page(array: Daemon) -> None:
    out = array.sg("sg_vpd", "-p", "lbpv", f"/dev/sg{THIN}").stdout
    for flag in ("Unmap command supported (LBPU): 1", "(LBPWS): 1", "(LBPWS10): 1", "(LBPRZ): 1", "(ANC_SUP): 1"):
        assert flag in out
    assert "Thin provisioned" in out or "thin provisioned" in out


def test_read_capacity(array: Daemon) -> None:
    thin = array.sg("sg_readcap", "--16", f"/dev/sg{THIN}").stdout
    assert "Number of logical blocks=524288" in thin
    assert "Logical block length=512 bytes" in thin
    assert "physical block exponent=3" in thin
    assert "lbpme=1" in thin and "lbprz=1" in thin
    assert "Logical block length=4096 bytes" in array.sg("sg_readcap", "--16", f"/dev/sg{NATIVE_4K}").stdout
    assert "Number of logical blocks=2147483648" in array.sg("sg_readcap", "--16", f"/dev/sg{HUGE}").stdout


def test_report_luns(array: Daemon) -> None:
    out = array.sg("sg_luns", "/dev/sg0").stdout
    assert [int(x[:4], 16) for x in re.findall(r"^ +([0-9a-f]{16})$", out, re.M)] == LUNS


def test_opcodes(array: Daemon) -> None:
    out = array.sg("sg_opcodes", "--alpha", "/dev/sg0").stdout.lower()
    for name in (
        "test unit ready", "inquiry", "report luns", "read(6)", "read(10)", "read(12)", "read(16)",
        "write(6)", "write(10)", "write(12)", "write(16)", "write and verify(10)", "verify(10)", "verify(16)",
        "write same(10)", "write same(16)", "unmap", "get lba status", "compare and write",
        "extended copy", "persistent reserve in", "persistent reserve out", "synchronize cache(10)",
        "synchronize cache(16)", "mode sense(6)", "mode sense(10)", "request sense", "start stop unit", "orwrite",
    ):  # fmt: skip
        assert name in out, f"{name} is not listed:\n{out}"
    one = array.sg("sg_opcodes", "--opcode=0x93", "/dev/sg0").stdout.lower()
    assert "write same(16)" in one
    absent = array.sg("sg_opcodes", "--opcode=0x04", "/dev/sg0").stdout.lower()
    assert "not supported" in absent


def test_ready_sense_and_cache_commands(array: Daemon) -> None:
    array.sg("sg_turs", "--num=10", "/dev/sg0")
    array.sg("sg_requests", "/dev/sg0")
    array.sg("sg_sync", "/dev/sg0")
    array.sg("sg_sync", "--16", "--lba=100", "--count=8", "/dev/sg0")
    for width in (["--10"], []):
        array.sg("sg_seek", "--pre-fetch", *width, "--lba=0", "--num-blocks=64", "/dev/sg0")


def test_write_cache_is_announced(array: Daemon) -> None:
    for width in ([], ["--six"]):
        page = bytes.fromhex("".join(array.sg("sg_modes", *width, "--page=8", "-R", "/dev/sg0").stdout.split()))
        assert page[0] & 0x3F == 0x08 and page[2] & 0x04, f"WCE is not set: {page.hex()}"


@pytest.mark.parametrize("lun", [THIN, NATIVE_4K, THICK])
def test_data_round_trip(array: Daemon, lun: int, tmp_path: Path) -> None:
    data = noise(4 << 20, seed=lun)
    write(array, lun, 1000, data, tmp_path)
    bs = 4096 if lun == NATIVE_4K else 512
    same(read(array, lun, 1000, len(data) // bs, tmp_path), data)


def test_block_device_interface(array: Daemon, tmp_path: Path) -> None:
    data = noise(1 << 20, seed=99)
    f = tmp_path / "data"
    f.write_bytes(data)
    array.sg("sg_dd", f"if={f}", "of=/dev/sd0", "bs=512", "blk_sgio=1", "seek=40000")
    same(read(array, THIN, 40000, 2048, tmp_path), data)


@pytest.mark.parametrize("size", [6, 10, 12, 16])
def test_every_size_of_read_and_write(array: Daemon, size: int, tmp_path: Path) -> None:
    data = noise(64 * 512, seed=size)
    f = tmp_path / "data"
    f.write_bytes(data)
    array.sg("sg_dd", f"if={f}", "of=/dev/sg0", "bs=512", f"cdbsz={size}", f"seek={size * 1000}", "bpt=16")
    g = tmp_path / "back"
    array.sg("sg_dd", "if=/dev/sg0", f"of={g}", "bs=512", f"cdbsz={size}", f"skip={size * 1000}", "count=64", "bpt=16")
    same(g.read_bytes(), data)


def test_verify(array: Daemon, tmp_path: Path) -> None:
    data = noise(8 * 512, seed=5)
    write(array, THIN, 5000, data, tmp_path)
    f = tmp_path / "cmp"
    f.write_bytes(data)
    verify = ["--lba=5000", "--count=8", "--ebytchk=1", f"--in={f}", "--ndo=4096"]
    array.sg("sg_verify", *verify, "/dev/sg0")
    f.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    array.sg("sg_verify", *verify, "/dev/sg0", expect=MISCOMPARE)


def test_protected_unit_refuses_changes(array: Daemon, tmp_path: Path) -> None:
    dev = f"/dev/sg{PROTECTED}"
    array.sg("sg_write_same", "--lba=0", "--num=8", dev, expect=DATA_PROTECT)
    array.sg("sg_unmap", "--force", "--lba=0", "--num=8", dev, expect=DATA_PROTECT)
    assert read(array, PROTECTED, 0, 8, tmp_path) == bytes(4096)


def test_removable_unit_unloads(array: Daemon) -> None:
    dev = f"/dev/sg{REMOVABLE}"
    array.sg("sg_prevent", "--prevent=0", dev)
    array.sg("sg_start", "--eject", dev)
    try:
        array.sg("sg_turs", dev, expect=NOT_READY)
    finally:
        array.sg("sg_start", "--load", dev)
    array.sg("sg_turs", dev)


def test_beyond_the_end(array: Daemon) -> None:
    r = array.sg("sg_dd", "if=/dev/sg0", "of=/dev/null", "bs=512", "skip=524288", "count=1", expect=None)
    assert r.returncode not in (0, None), r
    array.sg("sg_write_same", "--lba=524280", "--num=16", "/dev/sg0", expect=OUT_OF_RANGE)


def test_header_digest(array: Daemon, tmp_path: Path) -> None:
    f = tmp_path / "data"
    f.write_bytes(noise(1 << 20, seed=7))
    back = tmp_path / "back"
    array.sg("sg_dd", f"if={f}", "of=/dev/sg0", "bs=512", "seek=9000", digest="crc32c")
    array.sg("sg_dd", "if=/dev/sg0", f"of={back}", "bs=512", "skip=9000", "count=2048", digest="crc32c")
    same(back.read_bytes(), f.read_bytes())


def test_lun_reset(array: Daemon) -> None:
    array.sg("sg_reset", "--device", "/dev/sg0")
    array.sg("sg_turs", "/dev/sg0")
