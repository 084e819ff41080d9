"""The kernel's iSCSI initiator against the portal of `arraysim serve`, without LIO."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from guest import INITIATOR, RESULTS, Initiator, Session, mounted, wait
from harness import TARGET, Config, Daemon, MiB, Volume, run
from load import ODD, Load, fio, fsck, mkfs

ARRAY = Config(volumes=[Volume("v", 0), Volume("removable", 6, removable=True)])


@pytest.fixture(scope="module")
def array() -> Iterator[Daemon]:
    """The array of this module."""
    with Daemon(ARRAY, "portal") as d:
        yield d


@pytest.fixture(scope="module")
def session(array: Daemon, initiator: Initiator) -> Iterator[Session]:
    """A session with open-iscsi's own settings."""
    with initiator.session(f"127.0.0.1:{array.port}", TARGET, len(ARRAY.volumes)) as s:
        yield s


# Discovery and login


def test_discovery(array: Daemon, initiator: Initiator) -> None:
    assert initiator.discover(f"127.0.0.1:{array.port}") == [(f"127.0.0.1:{array.port},1", TARGET)]


def test_session_is_shown(session: Session) -> None:
    text = run(["iscsiadm", "-m", "session", "-P", "3"]).stdout
    (RESULTS / "session.txt").write_text(text)
    assert "iSCSI Connection State: LOGGED IN" in text
    assert "Internal iscsid Session State: NO CHANGE" in text


#: What open-iscsi's defaults and ours come to (RFC 7143, 13).
NEGOTIATED = {
    "initial_r2t": "0",
    "immediate_data": "1",
    "header_digest": "0",
    "data_digest": "0",
    "max_outstanding_r2t": "1",
    "erl": "0",
}


@pytest.mark.parametrize("key", NEGOTIATED)
def test_negotiated(session: Session, key: str) -> None:
    assert session.negotiated(key) == NEGOTIATED[key]


# Changes while logged in


@pytest.mark.kernel_says("Capacity data has changed|capacity change")
def test_resize(array: Daemon, session: Session) -> None:
    disk = session.disks()[1]
    size = disk.size
    assert disk.block("removable") == "1"
    array.cli("volume", "resize", "removable", str(2 * size))
    session.rescan()
    wait("new size", lambda: disk.size == 2 * size)


def test_hot_added_lun(array: Daemon, session: Session) -> None:
    before = len(session.disks())
    array.cli("volume", "create", "hot", "--pool", "p0", "--size", "64MiB")
    array.cli("export", "add", "hot", "--lun", "20")
    session.rescan()
    wait("disk", lambda: len(session.disks()) == before + 1)
    disk = session.disks()[-1]
    assert (disk.lun, disk.size) == (20, 64 * MiB)
    disk.be_patient()  # a removal in the middle of the probe leaves errors in the kernel's log
    (disk.sysfs / "delete").write_text("1")
    array.cli("export", "remove", "hot", "--lun", "20", expect=None)


# Logins of other kinds, each to an array of its own

#: name -> settings of the node's record -> what sysfs must show
LOGINS = {
    "digests": (
        {"conn[0].iscsi.HeaderDigest": "CRC32C", "conn[0].iscsi.DataDigest": "CRC32C"},
        {"header_digest": "1", "data_digest": "1"},
    ),
    "r2t-only": (
        {"session.iscsi.InitialR2T": "Yes", "session.iscsi.ImmediateData": "No"},
        {"initial_r2t": "1", "immediate_data": "0"},
    ),
    "r2t-and-immediate": (
        {"session.iscsi.InitialR2T": "Yes", "session.iscsi.ImmediateData": "Yes"},
        {"initial_r2t": "1", "immediate_data": "1"},
    ),
    "unsolicited-only": (
        {"session.iscsi.InitialR2T": "No", "session.iscsi.ImmediateData": "No"},
        {"initial_r2t": "0", "immediate_data": "0"},
    ),
    "smallest": (
        {
            "session.iscsi.FirstBurstLength": "512",
            "session.iscsi.MaxBurstLength": "512",
            "conn[0].iscsi.MaxRecvDataSegmentLength": "512",
            "conn[0].iscsi.MaxXmitDataSegmentLength": "512",
        },
        {"first_burst_len": "512", "max_burst_len": "512", "max_recv_dlength": "512", "max_xmit_dlength": "512"},
    ),
    "odd": (
        {
            "session.iscsi.FirstBurstLength": "5120",
            "session.iscsi.MaxBurstLength": "70656",
            "conn[0].iscsi.MaxRecvDataSegmentLength": "7680",
            "conn[0].iscsi.HeaderDigest": "CRC32C",
        },
        {"first_burst_len": "5120", "max_burst_len": "70656", "max_recv_dlength": "7680", "header_digest": "1"},
    ),
    "largest": (
        {
            "session.iscsi.FirstBurstLength": "16777212",
            "session.iscsi.MaxBurstLength": "16777212",
            "conn[0].iscsi.MaxRecvDataSegmentLength": "16777212",
        },
        {},
    ),
    "more-r2ts": ({"session.iscsi.MaxOutstandingR2T": "8"}, {}),
    "deep": ({"session.cmds_max": "1024", "session.queue_depth": "512"}, {}),
}


@pytest.fixture(scope="module")
def plain() -> Iterator[Daemon]:
    """An array with one LUN, for logins of all kinds one after another."""
    with Daemon(Config(volumes=[Volume("v", 0, size=256 * MiB)]), "plain") as d:
        yield d
        (RESULTS / "arraysim-plain.log").write_text(d.log_tail(10000))


@pytest.mark.parametrize("case", LOGINS)
def test_login(plain: Daemon, initiator: Initiator, case: str) -> None:
    settings, shown = LOGINS[case]
    with initiator.session(f"127.0.0.1:{plain.port}", TARGET, 1, settings) as s:
        assert {k: s.negotiated(k) for k in shown} == shown
        size = "2m" if case == "smallest" else "8m"
        fio(s.disks()[0].sd, case, *ODD, f"--size={size}")


CHAP = ("user1", "secret-of-12-chars")


@pytest.mark.kernel_says("conn error")
@pytest.mark.parametrize("case", ["right", "wrong", "none"])
def test_chap(initiator: Initiator, case: str) -> None:
    secret = {"right": CHAP[1], "wrong": "another-secret"}.get(case)
    settings = {}
    if secret:
        settings = {
            "session.auth.authmethod": "CHAP",
            "session.auth.username": CHAP[0],
            "session.auth.password": secret,
        }
    with Daemon(Config(chap=CHAP), "chap") as d:
        portal = f"127.0.0.1:{d.port}"
        if case == "right":
            with initiator.session(portal, TARGET, 1, settings) as s:
                run(["sg_inq", s.disks()[0].sg])
        else:
            with pytest.raises(AssertionError, match="authorization failure|authentication|login"):
                with initiator.session(portal, TARGET, 1, settings | {"session.initial_login_retry_max": "1"}):
                    pass


def test_masked(initiator: Initiator) -> None:
    """The kernel's initiator sees the LUNs that are exported to its name and no others."""
    volumes = [Volume("mine", 3, initiators=[INITIATOR]), Volume("theirs", 4, initiators=["iqn.2026-01.org.example:x"])]
    with Daemon(Config(volumes=volumes), "masked") as d:
        with initiator.session(f"127.0.0.1:{d.port}", TARGET, 1) as s:
            assert [x.lun for x in s.disks()] == [3]


# The daemon goes away and comes back

BACK_AGAIN = r"detected conn error"


@pytest.mark.kernel_says(BACK_AGAIN)
@pytest.mark.parametrize(
    "sig", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow, id="term"), pytest.param(signal.SIGKILL, id="kill")]
)
@pytest.mark.parametrize("kind", ["xfs", pytest.param("ext4", marks=pytest.mark.slow)])
def test_restart_under_a_file_system(initiator: Initiator, kind: str, sig: int, folder: Path) -> None:
    """The session is down for seconds; the kernel waits, logs in again, and no byte is lost."""
    with Daemon(Config(volumes=[Volume("v", 0, size=512 * MiB)]), "restart") as d:
        with initiator.session(f"127.0.0.1:{d.port}", TARGET, 1) as s:
            disk = s.disks()[0]
            mkfs(kind, disk.sd)
            with mounted(disk.sd, folder):
                args = [f"--directory={folder}", "--ioengine=psync", "--rw=randwrite", "--bs=16k", "--size=20m"]
                load = Load("load", *args, "--fsync=16", "--verify=crc32c", "--verify_fatal=1", "--numjobs=2")
                for _ in range(2):
                    time.sleep(2)
                    d.signal(sig, 60)
                    time.sleep(1)
                    d.start()
                load.finish()
            fsck(kind, disk.sd)
