"""The peers of bench.py and their fabrics: how each comes up, exports one LUN and goes away, even if it hangs.

A peer that stopped answering leaves processes in uninterruptible sleep, and what waits for those waits forever. So
everything here that touches the kernel is bounded: Stuck says what did not end, and abandon() frees the guest of a
peer: it kills the server and lets the kernel fail what it has outstanding.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from doors import LIO_TARGET, KernelDaemon
from guest import Disk, Session, clear_targets, remove_target, targetcli, tcmu_runner, wait
from harness import Config, MiB, Pool, ToolError

#: Of a peer's LUN; the first WORKING_SET of it takes all reads and writes, the second half the offloads.
SIZE = 512 * MiB
WORKING_SET = 128 * MiB
STORE = Path("/dev/shm/bench")
NAA = "naa.50014050000000b0"
PORTAL = "127.0.0.1:3260"

#: Seconds for a step that makes or removes something.
STEP = 120


class Stuck(Exception):
    """Something did not end in its time, or ended with an error, and the peer is not to be used any longer."""


def bounded(argv: list[str], limit: float, served: Callable[[], object] | None = None) -> str:
    """Run a command and return what it printed; Stuck when it fails or does not end in limit seconds.

    served is called every second and raises what ends the wait. Unlike subprocess.run this does not wait for a
    killed process, which a lost I/O keeps from dying.
    """
    deadline = time.monotonic() + limit
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        while True:
            try:
                out, err = (b.decode(errors="replace") for b in p.communicate(timeout=1))
                break
            except subprocess.TimeoutExpired:
                try:
                    if served:
                        served()
                    if time.monotonic() > deadline:
                        raise Stuck(f"did not end in {limit:g} s") from None
                except BaseException:
                    p.kill()
                    forget(p)
                    raise
    if p.returncode:
        said = " ".join((err.strip() or out.strip()).split())
        raise Stuck(f"{argv[0]} ended with {p.returncode}: {said[-300:]}")
    return out


def forget(p: subprocess.Popen[bytes]) -> None:
    """Let nothing wait for this process any longer; the kernel ends it when it can."""
    for pipe in (p.stdout, p.stderr):
        if pipe:
            pipe.close()
    p.returncode = -9  # what Popen takes for ended


def in_child(what: str, function: Callable[[], object], limit: float = STEP) -> None:
    """Call a function that the kernel may keep for ever in a process of its own; Stuck as in bounded."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException as e:
            print(f"  {what}: {type(e).__name__}: {e}", flush=True)
            os._exit(1)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if status:
                raise Stuck(f"{what} failed")
            return
        time.sleep(0.02)
    os.kill(pid, 9)
    raise Stuck(f"{what} did not end in {limit:g} s")


class Peer:
    """A backstore of LIO. server is the process that serves it, None where the kernel does."""

    name: str
    backstore: str
    server: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The serving process."""
        return self.server.pid if self.server else None

    def served(self) -> None:
        """Raise Stuck if the serving process has died."""
        if self.server and (code := self.server.poll()) is not None:
            raise Stuck(f"{self.name} died of signal {-code}" if code < 0 else f"{self.name} ended with {code}")

    @contextmanager
    def up(self) -> Iterator[str]:
        """Serve; yield the arguments of targetcli's create."""
        raise NotImplementedError

    @contextmanager
    def file(self) -> Iterator[Path]:
        """A sparse file of SIZE for the duration."""
        path = STORE / "file"
        with path.open("wb") as out:
            out.truncate(SIZE)
        try:
            yield path
        finally:
            path.unlink()


class Ours(Peer):
    """arraysim serve --tcmu."""

    name = "arraysim"
    backstore = "user:array"

    @contextmanager
    def up(self) -> Iterator[str]:
        os.environ["ARRAYSIM_SHM"] = str(STORE)
        with KernelDaemon(Config(pools=[Pool("p0")], volumes=[], cache=2 * WORKING_SET), "bench") as d:
            self.server = d.proc
            yield f"name=bench size={SIZE} cfgstring=p0/bench"


class Runner(Peer):
    """tcmu-runner's qcow handler on a raw file."""

    name = "tcmu-runner"
    backstore = "user:qcow"

    @contextmanager
    def up(self) -> Iterator[str]:
        with self.file() as path, tcmu_runner() as proc:
            self.server = proc
            yield f"name=bench size={SIZE} cfgstring={path}"


class FileIO(Peer):
    """The kernel's file backstore, buffered."""

    name = "fileio"
    backstore = "fileio"

    @contextmanager
    def up(self) -> Iterator[str]:
        with self.file() as path:
            yield f"name=bench size={SIZE} file_or_dev={path}"


#: In the order of the first round.
PEERS: list[Peer] = [Ours(), Runner(), FileIO()]

FABRICS = ["loop", "iscsi"]


def export_loop(peer: Peer) -> Disk:
    """Export by tcm_loop."""
    devices = Path("/sys/bus/scsi/devices")
    before = set(os.listdir(devices))
    targetcli(f"/loopback create {NAA}", f"/loopback/{NAA}/luns create /backstores/{peer.backstore}/bench lun=0")

    def fresh() -> Disk | None:
        return next((Disk(n) for n in sorted(set(os.listdir(devices)) - before) if n.count(":") == 3), None)

    return wait("disk of tcm_loop", fresh)


def export_iscsi(peer: Peer) -> Disk:
    """Export by the kernel's iSCSI target and log in."""
    tpg = f"/iscsi/{LIO_TARGET}/tpg1"
    targetcli(
        f"/iscsi create {LIO_TARGET}",
        f"{tpg}/luns create /backstores/{peer.backstore}/bench lun=0",
        f"{tpg} set attribute authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1",
    )
    for options in (["-o", "new"], ["-l"]):
        bounded([*node(), *options], STEP)
    session = Session(PORTAL, LIO_TARGET)
    session.await_disks(1)
    return session.disks()[0]


def node() -> list[str]:
    """Return the start of iscsiadm's command lines for the target."""
    return ["iscsiadm", "-m", "node", "-T", LIO_TARGET, "-p", PORTAL]


def withdraw(fabric: str) -> None:
    """Take back what export_loop or export_iscsi did, or as much of it as there is, and the backstore."""
    if fabric == "iscsi":
        for options in (["-u"], ["-o", "delete"]):
            try:
                bounded([*node(), *options], STEP)
            except Stuck as e:
                if "did not end" in str(e):
                    raise
    in_child("removing the target", lambda: remove_target(NAA if fabric == "loop" else LIO_TARGET))
    in_child("removing the backstore", clear_targets)


def abandon(peer: Peer, disk: Disk | None) -> None:
    """Kill the server and have the kernel fail all commands that it waits for, and all that come."""
    if peer.server is not None:
        peer.server.kill()
    if disk is not None:
        # Its removal would wait for a SYNCHRONIZE CACHE, three times.
        put(disk.sysfs / "scsi_disk" / disk.address / "cache_type", "temporary write through\n")
        put(disk.sysfs / "state", "offline\n")
    for device in Path("/sys/kernel/config/target/core").glob("user_*/bench"):
        # 2: complete with an error. A ring is reset only while its device is blocked.
        for action, value in (("block_dev", "1"), ("reset_ring", "2"), ("block_dev", "0")):
            put(device / "action" / action, value)


def put(path: Path, value: str) -> None:
    """Write to a file of the kernel's, if it takes that and in bounded time."""
    try:
        in_child(f"writing {value.strip()} to {path}", lambda: path.write_text(value), 10)
    except Stuck as e:
        print(f"  {e}", flush=True)


@contextmanager
def exported(peer: Peer, fabric: str) -> Iterator[Disk]:
    """Bring a peer up and export its LUN; after an exception, see that nothing waits for it any longer."""
    with peer.up() as arguments:
        disk = None
        try:
            targetcli(f"/backstores/{peer.backstore} create {arguments}")
            disk = export_loop(peer) if fabric == "loop" else export_iscsi(peer)
            put(disk.sysfs / "timeout", "600")  # bench.py's patience ends first
            wait("ready unit", lambda: ready(disk))
            Path(disk.node, "queue/scheduler").write_text("none")
            yield disk
        except BaseException:
            abandon(peer, disk)
            raise
        finally:
            withdraw(fabric)


def ready(disk: Disk) -> bool:
    """Report whether the unit is ready; it may have a unit attention to tell first."""
    try:
        bounded(["sg_turs", disk.sg], STEP)
    except Stuck as e:
        if "did not end" in str(e):
            raise ToolError(f"sg_turs {e}") from None
        return False
    return True
