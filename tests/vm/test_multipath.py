"""multipath-tools over two target ports of one array, one of which fails; a cluster's fencing by reservations."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from guest import RESULTS, Disk, Initiator, Session, wait
from harness import TARGET, Config, Daemon, MiB, Volume, free_port, run
from load import VERIFIED, on_disk

#: The second path's address, which goes away as a pulled cable does.
SECOND = "192.0.2.2"

CONF = """
defaults {
    user_friendly_names no
    find_multipaths no
    polling_interval 1
    max_polling_interval 1
    checker_timeout 30
    uxsock_timeout 300000
    no_path_retry queue
    reservation_key file
    prkeys_file /etc/multipath/prkeys
}
blacklist { devnode "^(vd|loop|ram)" }
"""

#: What a path that fails is expected to say.
FAILURES = (
    r"device-mapper: multipath|alua:|conn error|reset|detected conn|session recovery|timed? ?out|I/O error|Sense Key"
    r"|rejecting I/O|ping timeout|Add. Sense|Asymmetric|offline|FAILED Result|hostbyte=|reservation conflict"
)

pytestmark = pytest.mark.kernel_says(FAILURES)


@dataclass
class TwoPorts(Config):
    """An array with a portal at each of two addresses, and one for another node."""

    second: int = 0
    third: int = 0

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        """Return the configuration file's contents."""
        doc = super().document(data, portal, metrics)
        doc["portal"]["further"] = [f"{SECOND}:{self.second}", f"127.0.0.1:{self.third}"]
        return doc


def address(op: str) -> None:
    """Add ("add") or remove ("del") the second path's address."""
    run(["ip", "addr", op, f"{SECOND}/32", "dev", "lo"])


@pytest.fixture(scope="module")
def array() -> Iterator[Daemon]:
    """The array of this module."""
    address("add")
    config = TwoPorts(volumes=[Volume("v", 0, size=128 * MiB)], second=free_port(), third=free_port())
    with Daemon(config, "multipath") as d:
        yield d
        (RESULTS / "arraysim-multipath.log").write_text(d.log_tail(10000))
    address("del")


@contextmanager
def background(name: str, argv: list[str]) -> Iterator[None]:
    """Run a daemon of the system in the foreground of a process of ours."""
    with (RESULTS / f"{name}.log").open("ab") as log:
        proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        proc.terminate()
        proc.wait(60)


#: Settings of a path that is given up soon, for there is another one.
HASTY = {
    "session.timeo.replacement_timeout": "2",
    "conn[0].timeo.noop_out_interval": "2",
    "conn[0].timeo.noop_out_timeout": "5",
}


@dataclass
class Paths:
    """Two sessions with one LUN and the device over them."""

    sessions: list[Session]
    wwid: str

    @property
    def device(self) -> str:
        """The device of multipath-tools."""
        return f"/dev/mapper/{self.wwid}"

    @property
    def disks(self) -> list[Disk]:
        """The disks below it, by target port."""
        return [s.disks()[0] for s in self.sessions]

    def states(self) -> list[str]:
        """What multipathd says of each path: "active ready running" and so on."""
        # While it is busy it may say "timeout", and nothing of its paths.
        text = run(["multipathd", "show", "paths", "raw", "format", "%d %t %T %o"], expect=None, timeout=120).stdout
        said = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return [" ".join(said.get(Path(d.sd).name, "none").split()) for d in self.disks]

    def await_states(self, *want: str) -> None:
        """Wait until every path's state matches."""

        def there() -> bool:
            return all(re.search(w, s) for w, s in zip(want, self.states(), strict=True))

        wait(f"paths {want}", there, timeout=300)


@contextmanager
def mapped(initiator: Initiator, portals: Sequence[str], conf: str = CONF) -> Iterator[Paths]:
    """The first LUN by each of the portals, under multipathd."""
    run(["modprobe", "-a", "dm_multipath", "dm_service_time"])
    run(["modprobe", "scsi_dh_alua"], expect=None)  # what needs it says so
    Path("/etc/multipath.conf").write_text(conf)
    with ExitStack() as stack:
        stack.enter_context(background("udevd", ["/lib/systemd/systemd-udevd"]))
        wait("udevd", lambda: run(["udevadm", "control", "--ping"], expect=None, timeout=120).returncode == 0)
        sessions = [stack.enter_context(initiator.session(portal, TARGET, 1, HASTY)) for portal in portals]
        run(["udevadm", "trigger", "--subsystem-match=block", "--action=add"])
        run(["udevadm", "settle"], timeout=120)
        stack.enter_context(background("multipathd", ["multipathd", "-d", "-v2"]))
        wwid = (sessions[0].disks()[0].sysfs / "wwid").read_text().strip().replace("naa.", "3")
        p = Paths(sessions, wwid)

        def there() -> bool:
            return run(["multipathd", "show", "maps"], expect=None).returncode == 0 and Path(p.device).exists()

        wait("map", there, said=p)
        p.await_states(*["^active ready"] * len(portals))
        yield p
        run(["multipath", "-f", wwid], expect=None)
        run(["multipathd", "shutdown"], expect=None)


@pytest.fixture(scope="module")
def paths(array: Daemon, initiator: Initiator) -> Iterator[Paths]:
    """The LUN by both ports, under multipathd."""
    assert isinstance(array.config, TwoPorts)
    with mapped(initiator, [f"127.0.0.1:{array.port}", f"{SECOND}:{array.config.second}"]) as p:
        yield p


@contextmanager
def repeated(fio: list[str]) -> Iterator[None]:
    """Writes that are read back and compared, without a pause, until the end; any error of fio's is a failure."""
    stop = Path("/tmp/stop")
    stop.unlink(missing_ok=True)
    script = f"n=0; while [ ! -e {stop} ]; do {shlex.join(fio)} || exit; n=$((n + 1)); done; echo rounds: $n"
    proc = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield
    finally:
        stop.touch()
        out, _ = proc.communicate(timeout=600)
    assert proc.returncode == 0 and re.search(r"rounds: [1-9]", out), out


def verified_load(device: str) -> AbstractContextManager[None]:
    """The same on a device, past the page cache."""
    return repeated(["fio", "--name=load", "--thread", *on_disk(device, *VERIFIED, "--size=16m", depth=16)])


def test_one_device_of_two_ports(paths: Paths) -> None:
    """Both paths have a priority by ALUA, and each says which port and group it is."""
    text = run(["multipath", "-ll"], timeout=330).stdout
    (RESULTS / "multipath.txt").write_text(text)
    assert "hwhandler='1 alua'" in text and text.count("prio=50") >= 1, text
    for n, disk in enumerate(paths.disks, 1):
        page = run(["sg_vpd", "--page=di", disk.sg]).stdout
        assert f"Relative target port: 0x{n:x}" in page and f"Target port group: 0x{n:x}" in page, page


def test_failover_by_command(array: Daemon, paths: Paths) -> None:
    """A port that the array takes away under load: its path fails, and nothing else does."""
    with verified_load(paths.device):
        array.cli("port", "set", "1", "unavailable")
        paths.await_states("failed|faulty|ghost", "^active ready")
        array.cli("port", "set", "1", "optimized")
        paths.await_states("^active ready", "^active ready")
        array.cli("port", "set", "2", "standby")
        paths.await_states("^active ready", "ghost|failed|faulty")
        array.cli("port", "set", "2", "non-optimized")
        paths.await_states("^active ready", "^active ready")
    wait(
        "priorities",
        lambda: {"prio=50", "prio=10"} <= set(re.findall(r"prio=\d+", run(["multipath", "-ll"], timeout=330).stdout)),
    )
    array.cli("port", "set", "2", "optimized")


@pytest.mark.slow
def test_a_path_is_cut(paths: Paths) -> None:
    """A cable that is pulled under load, and put back."""
    with verified_load(paths.device):
        address("del")
        try:
            paths.await_states("^active ready", "failed|faulty|offline|transport")
        finally:
            address("add")
        paths.await_states("^active ready", "^active ready")


@pytest.mark.slow
def test_mpathpersist(paths: Paths) -> None:
    """A reservation of the device is one of both paths."""
    out = ["mpathpersist", "--out", paths.device]
    run([*out, "--register", "--param-sark=0xfe1"], timeout=120)
    keys = run(["sg_persist", "--in", "--read-full-status", paths.disks[0].sg]).stdout
    assert keys.count("Key=0xfe1") == 2, keys
    run([*out, "--reserve", "--param-rk=0xfe1", "--prout-type=5"], timeout=120)
    held = run(["mpathpersist", "--in", "--read-reservation", paths.device]).stdout
    assert "Write Exclusive, registrants only" in held, held
    for disk in paths.disks:
        run(["dd", "if=/dev/zero", f"of={disk.sd}", "bs=4k", "count=1", "oflag=direct", "status=none"])
    run([*out, "--release", "--param-rk=0xfe1", "--prout-type=5"], timeout=120)
    run([*out, "--register", "--param-rk=0xfe1", "--param-sark=0"], timeout=120)
    assert "0xfe1" not in run(["sg_persist", "--in", "--read-keys", paths.disks[0].sg]).stdout


# A cluster of two nodes


@pytest.fixture
def other_node(array: Daemon, paths: Paths) -> Iterator[Disk]:
    """The LUN as another initiator sees it: a session with a name of its own."""
    iface = ["iscsiadm", "-m", "iface", "-I", "node2"]
    run([*iface, "-o", "new"])
    run([*iface, "-o", "update", "-n", "iface.transport_name", "-v", "tcp"])
    run([*iface, "-o", "update", "-n", "iface.initiatorname", "-v", "iqn.2026-01.org.example:node2"])
    assert isinstance(array.config, TwoPorts)
    node = ["iscsiadm", "-m", "node", "-T", TARGET, "-p", f"127.0.0.1:{array.config.third}", "-I", "node2"]
    before = set(Path("/sys/class/iscsi_session").iterdir())
    run([*node, "-o", "new"])
    try:
        run([*node, "-l"], timeout=120)
        (fresh,) = set(Path("/sys/class/iscsi_session").iterdir()) - before
        device = (fresh / "device").resolve()

        def there() -> list[Disk]:
            return [Disk(p.name) for p in device.glob("target*/*") if re.fullmatch(r"\d+:\d+:\d+:\d+", p.name)]

        disk = wait("disk of the other node", there)[0]
        disk.be_patient()
        wait("ready unit", lambda: run(["sg_turs", disk.sg], expect=None).returncode == 0)
        yield disk
    finally:
        run([*node, "-u"], expect=None, timeout=120)
        run([*node, "-o", "delete"], expect=None)
        run([*iface, "-o", "delete"], expect=None)


#: Exit code of sg3_utils.
UNIT_ATTENTION = 6

WERO = "5"  # Write Exclusive, Registrants Only: what fencing agents take


def persist(disk: Disk, *args: str, expect: int | None = 0) -> str:
    """Run sg_persist as a fencing agent does: again after a unit attention condition."""
    for _ in range(5):
        r = run(["sg_persist", "-n", *args, "-d", disk.sg], expect=None, timeout=60)
        if r.returncode != UNIT_ATTENTION:
            break
    assert expect is None or r.returncode == expect, r
    return r.text


def keys(disk: Disk) -> list[str]:
    """Return the registered keys."""
    return re.findall(r"^\s+0x([0-9a-f]+)$", persist(disk, "-i", "-k"), re.M)


def writes(disk: Disk) -> bool:
    """Tell whether the node may write."""
    argv = ["dd", "if=/dev/zero", f"of={disk.sd}", "bs=4k", "count=1", "oflag=direct", "status=none"]
    return run(argv, expect=None).returncode == 0


def test_fencing(other_node: Disk, paths: Paths) -> None:
    """Two nodes register, one reserves; one fences the other, which then cannot write until it registers again."""
    one, two = paths.disks[0], other_node
    for disk, key in ((one, "aaa1"), (two, "aaa2")):
        persist(disk, "-o", "-I", "-S", key, "-Z")  # register and ignore, APTPL
    assert keys(one) == keys(two) == ["aaa1", "aaa2"]
    persist(one, "-o", "-R", "-T", WERO, "-K", "aaa1")
    assert "registrants only" in persist(two, "-i", "-r")
    assert writes(one) and writes(two)

    persist(one, "-o", "-A", "-T", WERO, "-K", "aaa1", "-S", "aaa2")  # preempt and abort: fence
    assert keys(one) == ["aaa1"]
    assert writes(one) and not writes(two), "a fenced node can write"
    # A node that was fenced finds out, and cannot fence back.
    persist(two, "-o", "-A", "-T", WERO, "-K", "aaa2", "-S", "aaa1", expect=24)

    persist(two, "-o", "-I", "-S", "aaa2", "-Z")
    assert writes(two), "unfenced"
    # The holder is fenced: the reservation goes over to who fenced it.
    persist(two, "-o", "-A", "-T", WERO, "-K", "aaa2", "-S", "aaa1")
    assert keys(two) == ["aaa2"] and "Key=0xaaa2" in persist(two, "-i", "-r")
    assert writes(two) and not writes(one)
    persist(two, "-o", "-C", "-K", "aaa2")
    assert keys(two) == []
    assert writes(two)
    wait("the other one's unit attention", lambda: writes(one))


@pytest.mark.slow
def test_registrations_survive_a_crash(array: Daemon, other_node: Disk, paths: Paths) -> None:
    """APTPL: the nodes find their registrations and the reservation in the array that comes back."""
    one, two = paths.disks[0], other_node
    for disk, key in ((one, "bbb1"), (two, "bbb2")):
        persist(disk, "-o", "-I", "-S", key, "-Z")
    persist(one, "-o", "-R", "-T", WERO, "-K", "bbb1")
    array.kill()
    array.start()
    for disk in (one, two):
        wait("ready unit", lambda d=disk: run(["sg_turs", d.sg], expect=None).returncode == 0)
    assert keys(two) == ["bbb1", "bbb2"]
    assert "Key=0xbbb1" in persist(two, "-i", "-r")
    persist(one, "-o", "-C", "-K", "bbb1")
    assert keys(two) == []
    paths.await_states("^active ready", "^active ready")
