"""sg3_utils: what a unit says about itself, and plain reads and writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from arrays import HUGE, NATIVE_4K, PROTECTED, REMOVABLE, STANDARD, THICK, THIN, noise, read, same, write
from harness import Config, Daemon, MiB, Volume

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
        "format unit", "sanitize, overwrite", "sanitize, block erase", "read defect data(10)", "write atomic(16)",
        "log sense", "populate token", "write using token", "report target port groups", "report timestamp",
    ):  # fmt: skip
        assert name in out, f"{name} is not listed:\n{out}"
    one = array.sg("sg_opcodes", "--opcode=0x93", "/dev/sg0").stdout.lower()
    assert "write same(16)" in one
    absent = array.sg("sg_opcodes", "--opcode=0x07", "/dev/sg0").stdout.lower()
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


def pages(array: Daemon, page: str) -> str:
    return array.sg("sg_logs", f"--page={page}", "/dev/sg0").stdout


def test_log_pages(array: Daemon, tmp_path: Path) -> None:
    assert re.findall(r"^ +(0x[0-9a-f]+)  ", pages(array, "0"), re.M) == [
        "0x00",
        "0x0c",
        "0x0d",
        "0x0e",
        "0x2f",
        "0x30",
    ]
    used = r"Used LBA mapping threshold resource count: (\d+)"
    before = re.search(used, pages(array, "0xc"))
    assert before, pages(array, "0xc")
    write(array, THIN, 400000, noise(9 << 20, seed=11), tmp_path)
    after = re.search(used, pages(array, "0xc"))
    assert after and int(after[1]) >= int(before[1]) + 2, "9 MiB are two threshold sets of 4 MiB and more"
    assert "IE asc = 0x0" in pages(array, "0x2f")
    assert "not available" in pages(array, "0xd")
    raw = array.sg("sg_logs", "--page=0x30", "--raw", "/dev/sg0").raw
    assert raw[0] & 0x3F == 0x30 and raw[4:8] == bytes([0, 0, 3, 16]), raw[:24].hex()


def test_target_port_groups(array: Daemon) -> None:
    def state() -> str:
        out = array.sg("sg_rtpg", "--decode", "/dev/sg0").stdout
        m = re.search(r"asymmetric access state : 0x[0-9a-f]+ \((.*)\)", out)
        assert m, out
        return m[1]

    assert state() == "active/optimized"
    stranger = array.sg(
        "sg_stpg", "--state=an", "--tp=1", "/dev/sg0", initiator="iqn.2026-01.io.example:x", expect=None
    )
    assert "Illegal request" in stranger.text, "hosts that may do so are configured"
    assert state() == "active/optimized"
    array.sg("sg_stpg", "--state=an", "--tp=1", "/dev/sg0")
    try:
        assert state() == "active/non optimized"
        array.sg("sg_turs", "/dev/sg1")
        refused = array.sg("sg_stpg", "--state=u", "--tp=1", "/dev/sg0", expect=None).text
        assert "Illegal request" in refused, "the only way to the units must not go"
    finally:
        array.sg("sg_stpg", "--state=ao", "--tp=1", "/dev/sg0")
    assert state() == "active/optimized"


def test_identifying_information_and_timestamp(array: Daemon) -> None:
    array.sg("sg_ident", "--set", "/dev/sg0", stdin=b"a disk")
    assert "61 20 64 69 73 6b" in array.sg("sg_ident", "/dev/sg0").stdout
    array.sg("sg_ident", "--clear", "/dev/sg0")
    array.sg("sg_timestamp", "--milliseconds=1700000000000", "/dev/sg0")
    assert 1700000000000 <= int(array.sg("sg_timestamp", "/dev/sg0").stdout) < 1700000600000


def test_erasing(new_array, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    array = new_array(Config(volumes=[Volume("v", 0, size=32 * MiB)]))
    data = noise(64 * 512, seed=12)
    for command in (
        ["sg_sanitize", "--block", "--quick", "--wait"],
        ["sg_sanitize", "--crypto", "--quick", "--wait"],
        ["sg_sanitize", "--overwrite", "--zero", "--quick", "--wait"],
        ["sg_format", "--format", "--quick", "--wait"],
    ):
        write(array, THIN, 777, data, tmp_path)
        array.sg(*command, "/dev/sg0", timeout=60)
        assert read(array, THIN, 777, 64, tmp_path) == bytes(64 * 512), command


def test_defects_and_atomic_writes(array: Daemon, tmp_path: Path) -> None:
    assert "grown defect list: 0" in array.sg("sg_reassign", "--grown", "/dev/sg0").stdout
    data = noise(8 * 512, seed=13)
    f = tmp_path / "data"
    f.write_bytes(data)
    array.sg("sg_write_x", "--atomic=0", "--16", f"--in={f}", "--lba=3001", "--num=8", "--bs=512", "/dev/sg0")
    same(read(array, THIN, 3001, 8, tmp_path), data)


def test_verify_one_block_with_many(array: Daemon, tmp_path: Path) -> None:
    block = noise(512, seed=14)
    write(array, THIN, 6000, block * 16, tmp_path)
    f = tmp_path / "block"
    f.write_bytes(block)
    verify = ["--16", "--lba=6000", "--ebytchk=3", f"--in={f}", "--ndo=512", "/dev/sg0"]
    array.sg("sg_verify", "--count=16", *verify)
    array.sg("sg_verify", "--count=17", *verify, expect=MISCOMPARE)
    array.sg("sg_verify", "--16", "--lba=6000", "--count=16", "/dev/sg0")


def test_mode_pages_are_saved(new_array) -> None:  # type: ignore[no-untyped-def]
    array = new_array(Config(volumes=[Volume("v", 0)]))
    control = ["--page=0xa", "-R"]
    saved = bytes.fromhex("".join(array.sg("sg_modes", *control, "/dev/sg0").stdout.split()))
    assert saved[0] == 0x8A, "PS says that the page can be saved"
    new = bytes([0x0A]) + saved[1:4] + bytes([saved[4] | 0x08]) + saved[5:]  # SWP
    hexed = ",".join(f"{b:x}" for b in new)
    array.sg("sg_wr_mode", "--page=0xa", f"--contents={hexed}", "--save", "/dev/sg0")
    array.stop()
    array.start()
    array.sg("sg_write_same", "--lba=0", "--num=8", "/dev/sg0", expect=DATA_PROTECT)
    hexed = ",".join(f"{b:x}" for b in bytes([0x0A]) + saved[1:])
    array.sg("sg_wr_mode", "--page=0xa", f"--contents={hexed}", "--save", "/dev/sg0")
    array.sg("sg_write_same", "--lba=0", "--num=8", "/dev/sg0")
