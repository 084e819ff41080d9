"""The guest itself: kernel modules, configfs, targetcli, LIO and open-iscsi with the kernel's own file backstore.

When these fail, the other tests of this folder say nothing about arraysim.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import patient_acl
from guest import LIO_RESET, Disk, Initiator, KernelLog, clear_targets, mounted, remove_target, targetcli, wait
from harness import MiB, run
from load import VERIFIED, Load, on_disk

TARGET = "iqn.2026-01.org.example:lio"
NAA = "naa.5001405000000001"

MODULES = [
    "target_core_mod",
    "target_core_user",
    "target_core_file",
    "iscsi_target_mod",
    "tcm_loop",
    "iscsi_tcp",
    "uio",
    "sd_mod",
    "sg",
    "xfs",
    "ext4",
    "loop",
    "dm_mod",
]


@pytest.mark.parametrize("module", MODULES)
def test_module_loads(module: str) -> None:
    run(["modprobe", module])
    # A file system that is built in has no folder there.
    kinds = re.findall(r"(?m)\t(\S+)$", Path("/proc/filesystems").read_text())
    assert Path("/sys/module", module).exists() or module in kinds


def test_configfs(lio: None) -> None:
    assert " /sys/kernel/config configfs " in Path("/proc/mounts").read_text()
    assert Path("/sys/kernel/config/target/core").is_dir()


@pytest.mark.kernel_says("dev sd[az]|odd pair")
def test_kernel_log_is_watched() -> None:
    """The guard of every other test would notice."""
    log = KernelLog()
    for line in ("blk_update_request: I/O error, dev sdz, sector 0", "just a remark"):
        Path("/dev/kmsg").write_text(f"<6>test: {line}\n")
    assert len(log.trouble()) == 1
    log.allow("dev sdz")
    assert log.trouble() == []
    # A warning is one thing, whichever of its lines tells which it is.
    lines = (
        "---[ cut here ]---",
        "the odd pair",
        "WARNING: CPU: 0",
        "Call Trace:",
        "---[ end trace 0 ]---",
        "dev sda: BUG:",
    )
    for line in lines:
        Path("/dev/kmsg").write_text(f"<6>{line}\n")
    log.allow("the odd pair")
    assert [line.partition(": ")[2] for line in log.trouble()] == ["dev sda: BUG:"]
    log.close()


def genl_family(name: str) -> tuple[int, int] | None:
    """Return number and version of a generic netlink family (genetlink.h: CTRL_CMD_GETFAMILY)."""
    data = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(data), 2) + data + bytes(-len(data) % 4)  # CTRL_ATTR_FAMILY_NAME
    body = struct.pack("=BBH", 3, 1, 0) + attribute
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16) as s:
        s.settimeout(5)
        s.send(struct.pack("=IHHII", 16 + len(body), 0x10, 1, 1, 0) + body)
        reply = s.recv(8192)
    if struct.unpack_from("=H", reply, 4)[0] == 2:  # NLMSG_ERROR
        return None
    found, at = {}, 20
    while at + 4 <= len(reply):
        size, kind = struct.unpack_from("=HH", reply, at)
        found[kind] = reply[at + 4 : at + size]
        at += (size + 3) & ~3
    return struct.unpack("=H", found[1])[0], struct.unpack("=I", found[3])[0]


def test_netlink_family(lio: None) -> None:
    family = genl_family("TCM-USER")
    assert family is not None and family[1] == 2
    assert genl_family("NO-SUCH") is None


@pytest.fixture(scope="module")
def configured(lio: None) -> Iterator[str]:
    """What targetcli lists before it configures the below, in one session of it: each takes a second to start."""
    tpg = f"/iscsi/{TARGET}/tpg1"
    said = targetcli(
        "ls /",
        "/backstores/fileio create name=disk file_or_dev=/srv/disk.img size=512M sparse=true",
        f"/iscsi create {TARGET}",
        f"{tpg}/luns create /backstores/fileio/disk",
        f"{tpg} set attribute authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1",
        *patient_acl(tpg),
    )
    # What it lists ends where it tells of its first work.
    yield said.stdout.partition("Created fileio")[0]
    clear_targets()
    os.unlink("/srv/disk.img")


def test_targetcli_lists(configured: str) -> None:
    for node in ("fileio", "ramdisk", "iscsi", "loopback"):
        assert re.search(rf"\b{node}\b", configured), configured


@pytest.fixture(scope="module")
def backing(configured: str) -> str:
    """A file backstore of 512 MiB, exported by LIO's iSCSI target."""
    return "/backstores/fileio/disk"


@pytest.fixture(scope="module")
def iscsi_disk(backing: str, initiator: Initiator) -> Iterator[Disk]:
    """The backstore as the kernel's initiator sees it over loopback TCP."""
    assert [t for _, t in initiator.discover("127.0.0.1")] == [TARGET]
    with initiator.session("127.0.0.1:3260", TARGET, 1) as session:
        yield session.disks()[0]


def test_iscsi_inquiry(iscsi_disk: Disk) -> None:
    text = run(["sg_inq", iscsi_disk.sg]).stdout
    assert re.search(r"Vendor identification: LIO-ORG", text) and "disk" in text


def test_iscsi_size(iscsi_disk: Disk) -> None:
    assert iscsi_disk.size == 512 * MiB


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_file_system(iscsi_disk: Disk, kind: str, folder: Path) -> None:
    run(["mkfs." + kind, "-q", "-f" if kind == "xfs" else "-F", iscsi_disk.sd], timeout=120)
    with mounted(iscsi_disk.sd, folder):
        (folder / "file").write_bytes(os.urandom(4 * MiB))
    run(["fsck.ext4", "-fn", iscsi_disk.sd] if kind == "ext4" else ["xfs_repair", "-n", iscsi_disk.sd], timeout=120)


def test_loopback_fabric(backing: str) -> None:
    before = set(os.listdir("/sys/bus/scsi/devices"))
    try:
        targetcli(f"/loopback create {NAA}", f"/loopback/{NAA}/luns create {backing}")

        def fresh() -> list[str]:
            new = set(os.listdir("/sys/bus/scsi/devices")) - before
            return [n for n in new if re.fullmatch(r"\d+:\d+:\d+:\d+", n)]

        disk = Disk(wait("disk of tcm_loop", fresh)[0])
        assert "LIO-ORG" in run(["sg_inq", disk.sg]).stdout
        assert disk.size == 512 * MiB
    finally:
        remove_target(NAA)


@pytest.mark.slow
@pytest.mark.qemu("on one processor LIO's iSCSI target waits for ever for a command of its own that was reset")
@pytest.mark.kernel_says(LIO_RESET)
@pytest.mark.parametrize("kind", ["--device", "--target"])
def test_reset_under_load(iscsi_disk: Disk, kind: str) -> None:
    """What of test_disks.py's test of this name is the kernel's own doing."""
    load = Load("reset", *on_disk(iscsi_disk.sd, *VERIFIED, "--size=64m"))
    for _ in range(5):
        time.sleep(0.5)
        run(["sg_reset", kind, iscsi_disk.sg], timeout=60)
    load.finish()
