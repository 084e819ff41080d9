"""handler_arraysim.so in Debian's tcmu-runner: devices that forward to a running array over iSCSI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrays import NEARLY_NOTHING, Delta
from doors import POOLS, looped
from guest import RESULTS, Disk, mounted, targetcli, tcmu_runner, wait
from harness import REPO, Config, Daemon, MiB, Volume, run
from load import VERIFIED, Load, content, fill, fio, fsck, mkfs, on_disk, sha

FOLDER = Path("/usr/lib/x86_64-linux-gnu/tcmu-runner")
SETTINGS = Path("/etc/arraysim/tcmu-runner.yaml")
STORES = "/backstores/user:arraysim"
NAA = "naa.5001405000000030"
SIZE = 128 * MiB

VOLUMES = [
    Volume("a", 0, size=SIZE),
    Volume("b", 1, pool="p1", size=SIZE),
    Volume("native", 2, block_size=4096, size=SIZE),
    Volume("spare", 300, size=SIZE),
]


@pytest.fixture(scope="module")
def array() -> Iterator[Daemon]:
    """The array, with its portal as its only door."""
    with Daemon(Config(pools=POOLS, volumes=VOLUMES), "plugin") as d:
        yield d
        (RESULTS / "arraysim-plugin.log").write_text(d.log_tail(10000))


@pytest.fixture(scope="module")
def runner(array: Daemon, lio: None) -> Iterator[subprocess.Popen[bytes]]:
    """tcmu-runner with Debian's handlers and ours."""
    shutil.copy(REPO / "bin" / "handler_arraysim.so", FOLDER)
    SETTINGS.parent.mkdir(exist_ok=True)
    portal = {"portal": f"127.0.0.1:{array.port}"}
    SETTINGS.write_text(json.dumps({"arrays": {"default": portal, "away": {"portal": "127.0.0.1:1"}}}))
    with tcmu_runner() as proc:
        yield proc
        (FOLDER / "handler_arraysim.so").unlink()


def create(name: str, lun: int | str, size: int = SIZE, block_size: int = 512) -> str:
    """Return the targetcli command that makes a backstore of a LUN."""
    control = f" control=hw_block_size={block_size}" if block_size != 512 else ""
    return f"{STORES} create name={name} size={size} cfgstring={lun}{control}"


@pytest.fixture(scope="module")
def disks(runner: subprocess.Popen[bytes]) -> Iterator[list[Disk]]:
    """Three LUNs as disks of tcm_loop."""
    names = ["a", "b", "native"]
    made = [create("a", 0), create("b", 1), create("native", 2, block_size=4096)]
    # Commands outlast two starts of the array, each of which may take half a minute on a busy machine.
    made += [f"{STORES}/{name} set attribute cmd_time_out=300" for name in names]
    with looped(NAA, names, *made, subtype="arraysim") as found:
        yield found


def test_targetcli_shows_it(disks: list[Disk]) -> None:
    text = targetcli("ls /backstores").text
    assert re.search(r"user:arraysim .*3\]", text) and "user:qcow" in text, text
    assert "LUN" in targetcli(f"{STORES} help create").text


BAD = {
    "no LUN": ("x", "not a valid LUN"),
    "no array": ("0/array=nobody", "nobody"),
    "an option": ("0/colour=red", "not a valid option"),
}


def test_bad_strings_are_explained(runner: subprocess.Popen[bytes]) -> None:
    r = targetcli(*[create("bad", config) for config, _ in BAD.values()], expect=None)
    assert [said for _, said in BAD.values() if said not in r.text] == [] and "Traceback" not in r.text, r


@pytest.mark.kernel_says("returned|configfs|tcmu|TCMU")
@pytest.mark.parametrize(
    ("lun", "size", "block_size", "says"),
    [
        pytest.param(300, SIZE // 2, 512, "create it with size=", id="size"),
        pytest.param("0/array=away", SIZE, 512, "connection refused", id="array", marks=pytest.mark.slow),
        pytest.param(99, SIZE, 512, "exported", id="lun", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_opened(
    runner: subprocess.Popen[bytes], lun: int | str, size: int, block_size: int, says: str
) -> None:
    log = RESULTS / "tcmu-runner.log"
    before = log.stat().st_size
    targetcli(create("bad", lun, size, block_size), expect=None)
    wait("complaint", lambda: says in log.read_text(errors="replace")[before:])
    assert "bad" not in targetcli(f"ls {STORES}").text


def test_who_it_is(disks: list[Disk], array: Daemon) -> None:
    """The names and limits are the array's: one LUN, whoever serves it."""
    assert "ARRAYSIM" in run(["sg_inq", disks[0].sg]).stdout
    assert disks[0].size == SIZE and disks[2].queue("logical_block_size") == "4096"
    assert (disks[0].sysfs / "wwid").read_text().startswith("naa.6")
    assert disks[0].scsi_disk("zeroing_mode") == "writesame_16_unmap"
    text = run(["sg_opcodes", disks[0].sg]).stdout
    assert "Extended copy" in text or "Third party copy" in text, text


def test_data(disks: list[Disk]) -> None:
    for n, disk in enumerate(disks):
        data = fill(disk.sd, 8 * MiB, n)
        assert content(disk.sd, 8 * MiB) == data
    fio(disks[0].sd, "verify", *VERIFIED, "--size=32m")


def test_write_same(disks: list[Disk]) -> None:
    disk = disks[0]
    fill(disk.sd, 4 * MiB)
    for form in (["--10"], ["--16", "--ndob"], ["--32"], ["--16", "--unmap"]):
        fill(disk.sd, 1 * MiB)
        run(["sg_write_same", *form, "--lba=0", f"--num={MiB // 512}", disk.sg])
        assert content(disk.sd, MiB) == bytes(MiB), form
    run(["blkdiscard", "-z", "-l", str(4 * MiB), disk.sd])
    assert content(disk.sd, 4 * MiB) == bytes(4 * MiB)


def test_copy_in_the_array(disks: list[Disk], array: Daemon) -> None:
    """Between two devices, which tcmu-runner's own emulation refuses; no data goes through this machine."""
    data = fill(disks[0].sd, 16 * MiB, 7)
    d = Delta(array)
    run(["sg_xcopy", f"if={disks[0].sg}", f"of={disks[1].sg}", "bs=512", f"count={16 * MiB // 512}"])
    assert d.wire("a") + d.wire("b") < NEARLY_NOTHING
    assert content(disks[1].sd, 16 * MiB) == data


@pytest.mark.parametrize("which", [0, pytest.param(2, marks=pytest.mark.slow)], ids=["512e", "4Kn"])
def test_file_system(disks: list[Disk], which: int, folder: Path) -> None:
    disk = disks[which]
    mkfs("ext4", disk.sd)
    with mounted(disk.sd, folder):
        (folder / "file").write_bytes(os.urandom(8 * MiB))
        before = sha(folder / "file")
        run(["fstrim", folder])
        assert sha(folder / "file") == before
    fsck("ext4", disk.sd)


def test_array_restarts_under_load(disks: list[Disk], array: Daemon) -> None:
    """No error reaches fio when the array dies and comes back, and what it wrote is there."""
    had = content(disks[1].sd, MiB)
    load = Load("restart", *on_disk(disks[0].sd, *VERIFIED, "--size=32m"))
    for _ in range(2):
        array.kill()
        array.start()
    load.finish()
    assert content(disks[1].sd, MiB) == had


@pytest.mark.slow
def test_beside_qcow(disks: list[Disk]) -> None:
    """What such a site keeps tcmu-runner for works on in the same process."""
    file = Path("/srv/beside.img")
    with file.open("wb") as f:
        f.truncate(SIZE)
    naa = NAA[:-1] + "1"
    made = f"/backstores/user:qcow create name=beside size={SIZE} cfgstring={file}"
    with looped(naa, ["beside"], made, subtype="qcow") as (disk,):
        assert content(disk.sd, MiB) == bytes(MiB)
        data = fill(disk.sd, MiB, 5)
        assert content(disk.sd, MiB) == data
        assert content(disks[0].sd, MiB) != data
    targetcli("/backstores/user:qcow delete beside")


@pytest.mark.slow
def test_delete_and_again(runner: subprocess.Popen[bytes], disks: list[Disk]) -> None:
    with looped(NAA[:-1] + "2", ["spare"], create("spare", 300), subtype="arraysim") as (disk,):
        data = fill(disk.sd, MiB, 3)
    targetcli(f"{STORES} delete spare")
    with looped(NAA[:-1] + "2", ["spare"], create("spare", 300), subtype="arraysim") as (disk,):
        assert content(disk.sd, MiB) == data
    targetcli(f"{STORES} delete spare")
