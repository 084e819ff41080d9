"""An array in a Ceph pool: the real daemon on a throw-away cluster of one OSD in memory."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from arrays import noise, read, same, write
from harness import REPO, Config, Daemon, Mdisk, MiB, Pool, ToolError, Volume, binary, free_port, run
from initiator import Session
from test_kill import Torture
from writers import CHANGED, INTERRUPTED, TRANSITION, Writer, check, finish

SCRIPT = REPO / "scripts" / "ceph.py"
BINARY = REPO / "bin" / "arraysim-rados"

#: Take-overs of each test of them.
TAKE_OVERS = int(os.environ.get("ARRAYSIM_TAKE_OVERS", "5"))


#: The processes of the cluster's OSDs.
OSDS: list[int] = []


@dataclass
class InPool(Config):
    """An array in a pool."""

    rados: dict[str, Any] = field(default_factory=dict)

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        """Return the configuration file's contents."""
        return {**super().document(data, portal, metrics), "store": "rados", "rados": self.rados}


class AdminConnection(http.client.HTTPConnection):
    """HTTP over a daemon's admin socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("arraysim", timeout=10)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class RadosDaemon(Daemon):
    """The program that knows librados."""

    def command(self) -> list[Any]:
        """Return how to start it."""
        return [BINARY, *super().command()[1:]]

    def state(self) -> dict[str, Any]:
        """Return what it says of the array's ownership; empty: it cannot be asked yet."""
        out = run([BINARY, "status", "--json", "--data", self.data], expect=None)
        return json.loads(out.stdout).get("ownership", {}) if out.returncode == 0 else {}

    def ownership(self) -> dict[str, Any]:
        """Return the same from its admin socket, without a start of the program, which takes a tenth of a second."""
        with contextlib.closing(AdminConnection(self.data / "admin.sock")) as c:
            try:
                c.request("GET", "/api/v1/status")
                answer = c.getresponse()
                return json.load(answer).get("ownership", {}) if answer.status == 200 else {}
            except (OSError, http.client.HTTPException):
                return {}

    def stand_by(self, timeout: float = 60) -> None:
        """Start the daemon and wait until it stands by for an array that another one has."""
        self.spawn(self.command())
        self.await_standby(timeout)

    def await_standby(self, timeout: float = 60) -> None:
        """Wait until a daemon that was started stands by."""
        deadline = time.monotonic() + timeout
        while self.ownership().get("state") != "standing by":
            if not self.alive() or time.monotonic() > deadline:
                raise ToolError(f"it does not stand by:\n{self.log_tail()}")
            time.sleep(0.1)

    def served(self) -> int:
        """Return how often it has been ready."""
        return len(re.findall(rb"^ready\b", self.log.read_bytes(), re.M)) if self.log.exists() else 0


class Address:
    """An address that moves from node to node: what connects to it is passed on to the one that has it now."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def move(self, port: int) -> None:
        """Pass what connects from now on on to another port, and cut off what is connected."""
        self.to = port
        self.cut()

    def cut(self) -> None:
        with self.lock:
            for s in self.open:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.to), 5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with client, server, selectors.DefaultSelector() as both:
            with self.lock:
                self.open |= {client, server}
            both.register(client, selectors.EVENT_READ, server)
            both.register(server, selectors.EVENT_READ, client)
            with contextlib.suppress(OSError):
                self._pass(both)
            with self.lock:
                self.open -= {client, server}

    @staticmethod
    def _pass(both: selectors.DefaultSelector) -> None:
        while True:
            for key, _ in both.select():
                data = key.fileobj.recv(1 << 18)
                if not data:
                    return
                key.data.sendall(data)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """A cluster that ends with the test, whatever ends that: how to reach its pool."""
    absent = subprocess.run([SCRIPT, "missing"], capture_output=True, text=True).stdout.split()
    if absent:
        pytest.skip(f"Ceph is not installed: {' '.join(absent)}; run make rados-test")
    if not BINARY.exists():
        pytest.skip(f"{BINARY} does not exist: run make build-rados")
    proc = subprocess.Popen([SCRIPT, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        about = json.loads(proc.stdout.readline())
        OSDS[:] = [pid for name, pid in about["pids"].items() if name.startswith("osd")]
        yield {k: about[k] for k in ("conf", "keyring", "pool", "user")}
    finally:
        proc.stdin.close()
        proc.wait(timeout=60)
        proc.stdout.close()


def array(cluster: dict[str, str], log: str) -> InPool:
    pool = Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)])
    volumes = [Volume("v0", 0, pool="p0", size=64 * MiB)]
    return InPool([pool], volumes, cache=16 * MiB, rados={**cluster, "namespace": f"array-{log}", "log": log})


@pytest.mark.cluster
def test_smoke(cluster: dict[str, str], tmp_path: Path) -> None:
    """An array in a real pool serves, a standby takes it over behind kill -9, and nothing is lost: within a minute."""
    data = noise(2 * MiB, seed=3)
    config = array(cluster, "replicated")
    config.rados |= {"namespace": "smoke", "standby": True}
    with contextlib.ExitStack() as end:
        first, second = (RadosDaemon(config, f"rados-smoke-{n}") for n in "ab")
        end.callback(second.cleanup)
        end.enter_context(first)
        write(first, 0, 2048, data, tmp_path)
        assert first.state()["state"] == "serving" and first.state()["epoch"] == 1
        second.stand_by()
        end.callback(second.stop)
        owner = second.state()["owner"]
        assert owner.startswith(f"process {first.proc.pid} on "), owner
        assert "stands by" in run([binary(), "volume", "list", "--data", second.data], expect=1).text
        first.kill()
        first.proc = None  # which is no complaint
        await_owner(second, 0)
        same(read(second, 0, 2048, len(data) // 512, tmp_path), data)
        assert second.state()["epoch"] == 2
        second.cli("check")


@contextlib.contextmanager
def no_osd() -> Iterator[None]:
    """Have no OSD answer for a while."""
    for pid in OSDS:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in OSDS:
            os.kill(pid, signal.SIGCONT)


def ends(d: RadosDaemon, within: float) -> None:
    """Have a daemon end by SIGTERM, as one that was told to."""
    d.proc.send_signal(signal.SIGTERM)
    assert d.proc.wait(within) == 0, d.log_tail()
    d.proc = None


@pytest.mark.proof
def test_who_waits_says_so_and_ends(cluster: dict[str, str], tmp_path: Path) -> None:
    """A start that waits for an OSD or a monitor shows that, ends by SIGTERM, and leaves an owner that lives alone."""
    config = array(cluster, "replicated")
    config.rados |= {"namespace": "waits", "standby": True}

    def shows(d: RadosDaemon, state: str, trouble: str, timeout: float = 40) -> None:
        deadline = time.monotonic() + timeout
        while not ((s := d.state()).get("state") == state and trouble in s.get("trouble", "")):
            assert d.alive(), d.log_tail()
            assert time.monotonic() < deadline, f"it shows {s}\n{d.log_tail()}"
            time.sleep(0.2)
        assert "lease_age_s" not in s or not trouble, f"nobody knows the age: {s}"

    with contextlib.ExitStack() as end:
        owner, other = (RadosDaemon(config, f"rados-waits-{n}") for n in "ab")
        end.callback(owner.cleanup)
        end.callback(other.cleanup)
        end.enter_context(owner)
        other.stand_by()
        with no_osd():
            shows(other, "standing by", "has not answered for 10 s")
            ends(other, 10)
            other.spawn(other.command())
            shows(other, "opening", "has not answered for 10 s")
            ends(other, 10)
            shows(owner, "busy", "")
        shows(owner, "serving", "")
        assert owner.state()["epoch"] == 1
        dead = tmp_path / "ceph.conf"
        dead.write_text("[global]\nmon_host = [v2:127.0.0.1:9]\nauth_client_required = cephx\n")
        config.rados["conf"] = str(dead)
        lost = RadosDaemon(config, "rados-waits-c")
        end.callback(lost.cleanup)
        lost.spawn(lost.command())
        shows(lost, "opening", "")
        ends(lost, 5)


def await_owner(d: RadosDaemon, before: int, timeout: float = 90) -> None:
    """Wait until a standby serves, which has been ready so often before."""
    deadline = time.monotonic() + timeout
    while d.served() <= before:
        if not d.alive() or time.monotonic() > deadline:
            raise ToolError(f"{d.name} does not take over:\n{d.log_tail()}")
        time.sleep(0.02)


#: Two pools, so that copies are made by reference and by moving, and a cache that is always too small.
TORTURED = (
    [Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)]), Pool("p1", mdisks=[Mdisk("m1", 256 * MiB)])],
    [
        Volume("a", 0, size=32 * MiB),
        Volume("b", 1, size=32 * MiB, thin=False),
        Volume("c", 2, size=32 * MiB, pool="p1"),
        Volume("d", 3, size=16 * MiB, block_size=4096),
    ],
)


@pytest.mark.proof
@pytest.mark.parametrize("way", ["kill", "stop"])
def test_take_overs_under_writes(cluster: dict[str, str], way: str) -> None:
    """Two daemons take the array over from each other under verified writes and offloads: nothing acknowledged is lost.

    An owner is killed, which a standby on its machine knows at once; or it is stopped, which costs a lease, and goes on
    when the other one serves: it is fenced then, and ends.
    """
    seed = int(os.environ.get("ARRAYSIM_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\n{TAKE_OVERS} take-overs, seed {seed}; repeat with ARRAYSIM_TAKE_OVERS={TAKE_OVERS} ARRAYSIM_SEED={seed}")
    rng, took = random.Random(seed), []
    config = InPool(*TORTURED, cache=16 * MiB, rados={**cluster, "namespace": f"take-{way}", "standby": True})
    owner, other = (RadosDaemon(config, f"rados-{way}-{n}") for n in "ab")
    address, torture = Address(owner.port), None
    try:
        owner.start()
        other.stand_by()
        port, owner.port = owner.port, address.port
        torture = Torture(owner, seed)
        owner.port = port
        for _ in range(TAKE_OVERS):
            torture.expect("verified")
            time.sleep(rng.uniform(0.2, 1.5))
            before, began = other.served(), time.monotonic()
            if way == "kill":
                owner.kill()
            else:
                owner.proc.send_signal(signal.SIGSTOP)
            await_owner(other, before)
            took.append(time.monotonic() - began)
            address.move(other.port)
            torture.expect("verified")
            if way == "stop":
                owner.proc.send_signal(signal.SIGCONT)
                assert owner.proc.wait(60) != 0, "an owner that was fenced ended as if all were well"
                assert "has a new owner" in owner.log_tail()
            other.cli("check")
            assert other.state()["state"] == "serving"
            owner.stand_by()
            owner, other = other, owner
            address.cut()  # the client logs in again, and says that it has verified everything
        torture.expect("verified")
        torture.proc.send_signal(signal.SIGTERM)
        event = torture.expect("done")
        assert torture.proc.wait(180) == 0, torture.trouble()
        owner.cli("check")
        other.stop()
        owner.stop()
    except AssertionError as e:
        raise AssertionError(f"{e}\nseed {seed}\n{owner.log_tail(20)}\n{other.log_tail(20)}") from None
    finally:
        if torture:
            torture.stop()
        address.close()
        for d in (owner, other):
            if d.alive():
                d.proc.send_signal(signal.SIGCONT)
                d.kill()
            d.cleanup()
    took.sort()
    print(f"  served again after {took[len(took) // 2]:.1f} s in the middle, {took[-1]:.1f} s at the most; {event}")
    assert event["unsure"] > 0


#: What asks a cluster as the administrator, by Debian's bindings: the arguments are the configuration, and a program.
ASK = """
import json, rados, sys
c = rados.Rados(conffile=sys.argv[1], name="client.admin")
c.connect(timeout=30)
for request in json.loads(sys.argv[3]):
    code, _, text = c.mon_command(json.dumps(request), b"")
    assert code == 0, text
io = c.open_ioctx(sys.argv[2])
io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
found = [(o.nspace, o.key) for o in io.list_objects()]
for space, key in found:
    io.set_namespace(space)
    try:
        print(space, key, io.stat(key)[0])
    except rados.ObjectNotFound:
        pass
io.close()
c.shutdown()
"""


def objects(cluster: dict[str, str], *requests: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Send requests to the monitor, and return the size of each object, by its namespace and name."""
    out = run(["/usr/bin/python3", "-c", ASK, cluster["conf"], cluster["pool"], json.dumps(requests)])
    found = (line.split() for line in out.stdout.splitlines())
    return {(space, key): int(size) for space, key, size in found}


def used(cluster: dict[str, str]) -> int:
    """Return the bytes that the OSD says are used."""
    socket = Path(cluster["conf"]).parent / "run" / "osd.0.asok"
    out = run(["ceph", "--admin-daemon", socket, "perf", "dump", "osd", "stat_bytes_used"])
    return json.loads(out.stdout)["osd"]["stat_bytes_used"]


def full_above(cluster: dict[str, str], bytes_used: float) -> None:
    """Have the OSD, which has 4 GiB, be full above that many bytes."""
    ratio = bytes_used / (4096 * MiB)
    parts = [("osd set-nearfull-ratio", 0.9), ("osd set-backfillfull-ratio", 0.95), ("osd set-full-ratio", 1.0)]
    objects(cluster, *({"prefix": prefix, "ratio": ratio * part} for prefix, part in parts))


def eventually(what: str, done: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.mark.proof
def test_start_in_a_full_pool(cluster: dict[str, str], tmp_path: Path) -> None:
    """Deleted volumes leave no objects. On an OSD that is full an array starts, and a deletion makes room."""
    name, data = "full", noise(32 * MiB, seed=5)
    config = array(cluster, "replicated")
    config.rados |= {"namespace": name}
    config.volumes = [Volume(v, i, pool="p0", size=64 * MiB) for i, v in enumerate(["gone", "large", "kept"])]

    def count(pattern: str) -> int:
        return sum(space == name and re.fullmatch(pattern, key) is not None for space, key in objects(cluster))

    def extents() -> int:
        return count(r"m[0-9a-f]+\.[0-9a-f]{8}")

    with RadosDaemon(config, "rados-full") as d:
        for lun in range(2):
            write(d, lun, 0, data, tmp_path)
        write(d, 2, 0, data[:MiB], tmp_path)
        eventually("nothing is destaged", lambda: extents() >= 17)
        d.cli("volume", "delete", "gone", "--force")
        eventually("the objects of a volume that was deleted stay", lambda: extents() <= 11)
        eventually("there is no reserve", lambda: count(r"reserve\..") == 8)
        try:
            full_above(cluster, used(cluster) - 4 * MiB)
            time.sleep(8)  # OSD and monitor agree
            d.kill()
            d.start()
            same(read(d, 2, 0, MiB // 512, tmp_path), data[:MiB])
            same(read(d, 1, 0, len(data) // 512, tmp_path), data)
            d.cli("volume", "delete", "large", "--force")
            eventually("on a full OSD a deletion makes no room", lambda: extents() <= 2)
        finally:
            full_above(cluster, 3890 * MiB)
        time.sleep(8)
        write(d, 2, 2048, data, tmp_path)
        same(read(d, 2, 2048, len(data) // 512, tmp_path), data)
        d.cli("check")


@dataclass
class NodeInPool(InPool):
    """One of several nodes that may have the array."""

    number: int = 1
    link: int = 0

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        """Return the configuration file's contents."""
        secret = data / "link.secret"
        secret.write_text("the secret of the nodes of this test\n")
        secret.chmod(0o600)
        about = {
            "id": self.number,
            "name": "abc"[self.number - 1],
            "listen": f"127.0.0.1:{self.link}",
            "secret_file": str(secret),
        }
        return {**super().document(data, portal, metrics), "node": about}


def forwards(d: RadosDaemon, timeout: float = 60) -> None:
    """Wait until a node that stands by has a link to the owner."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError):
            if d.metrics().sum("link_up") == 1:
                return
        if not d.alive() or time.monotonic() > deadline:
            raise ToolError(f"{d.name} does not forward:\n{d.log_tail()}")
        time.sleep(0.05)


def groups(d: Daemon) -> dict[int, int]:
    """REPORT TARGET PORT GROUPS of a session with a node: group -> state."""
    with Session(d, isid=77) as s:
        data = s.ready(0).good(0, bytes.fromhex("a30a00000000000001000000"), room=256)[4:]
    out = {}
    while data:
        out[int.from_bytes(data[2:4], "big")] = data[0] & 0x0F
        data = data[8 + 4 * data[7] :]
    return out


@pytest.mark.proof
@pytest.mark.parametrize("way", ["kill", "stop"])
def test_paths_over_take_overs(cluster: dict[str, str], way: str) -> None:
    """Three nodes show one array; hosts of all write on while it is taken over, and nothing acknowledged is lost.

    A host of a node that goes on forwarding, or takes over, keeps its session; that of one which ends logs in again.
    """
    nodes = []
    for number in (1, 2, 3):
        config = NodeInPool(
            [Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)])], [Volume("v0", 0, size=64 * MiB)], cache=16 * MiB,
            rados={**cluster, "namespace": f"paths-{way}", "standby": True}, number=number, link=free_port(),
        )  # fmt: skip
        nodes.append(RadosDaemon(config, f"rados-paths-{number}"))
    owner, *others = nodes
    writers: list[Writer] = []
    took = []
    try:
        owner.start()
        for d in others:
            d.stand_by()
            forwards(d)
        assert groups(owner) == groups(others[0]) == groups(others[1]) == {1: 0, 257: 1, 513: 1}
        writers = [Writer(d, 10 + n, range(n * 1000, n * 1000 + 200)) for n, d in enumerate(nodes, 1)]
        for w in writers:
            w.start()
        for _ in range(TAKE_OVERS):
            time.sleep(1)
            before, began = [d.served() for d in others], time.monotonic()
            if way == "kill":
                owner.kill()
            else:
                owner.proc.send_signal(signal.SIGSTOP)
            taker = next_owner(others, before)
            (left,) = (d for d in others if d is not taker)
            forwards(left)
            took.append(time.monotonic() - began)
            if way == "stop":
                owner.proc.send_signal(signal.SIGCONT)
                assert owner.proc.wait(60) != 0, "an owner that was fenced ended as if all were well"
            states = groups(left)
            first = {d: 1 + 256 * n for n, d in enumerate(nodes)}
            assert (states[first[taker]], states[first[left]], states[first[owner]]) == (0, 1, 3), states
            owner.stand_by()
            forwards(owner)
            assert groups(left)[first[owner]] == 1
            owner, others = taker, [left, owner]
        time.sleep(1)
        finish(writers)
        codes = {code for w in writers for code in w.codes}
        assert CHANGED in codes and codes & {TRANSITION, INTERRUPTED}, codes
        assert sum(check(writers, d) for d in nodes) > 300
        owner.cli("check")
        for d in (*others, owner):
            d.stop()
    except AssertionError as e:
        raise AssertionError("\n".join([str(e), *(d.log_tail(20) for d in nodes)])) from None
    finally:
        for w in writers:
            w.over.set()
        for d in nodes:
            if d.alive():
                d.proc.send_signal(signal.SIGCONT)
                d.kill()
            d.cleanup()
    took.sort()
    writes, sessions = (sum(n) for n in zip(*((w.writes, w.sessions) for w in writers), strict=True))
    middle = took[len(took) // 2]
    print(
        f"\n  {writes} writes in {sessions} sessions; linked again after {middle:.1f} s, {took[-1]:.1f} s at the most"
    )


def next_owner(standbys: list[RadosDaemon], before: list[int], timeout: float = 90) -> RadosDaemon:
    """Wait until one of the standbys serves, and return it."""
    deadline = time.monotonic() + timeout
    while True:
        for d, n in zip(standbys, before, strict=True):
            if d.served() > n:
                return d
        if time.monotonic() > deadline:
            raise ToolError("\n".join(["nobody takes over:", *(d.log_tail() for d in standbys)]))
        time.sleep(0.02)


@pytest.mark.proof
@pytest.mark.parametrize("log", ["replicated", "local"])
def test_array_in_a_pool_survives_kills(cluster: dict[str, str], log: str, tmp_path: Path) -> None:
    """What was acknowledged is there after kill -9: the successor fences the dead process and takes over."""
    first, second = noise(3 * MiB, seed=1), noise(1 * MiB, seed=2)
    with RadosDaemon(array(cluster, log), f"rados-{log}") as d:
        write(d, 0, 2048, first, tmp_path)
        d.kill()
        d.start()
        same(read(d, 0, 2048, len(first) // 512, tmp_path), first)
        write(d, 0, 16384, second, tmp_path)
        d.cli("check")
        d.kill()
        d.start()
        same(read(d, 0, 2048, len(first) // 512, tmp_path), first)
        same(read(d, 0, 16384, len(second) // 512, tmp_path), second)
        d.stop()
        # A program without librados, and one that looks for the array in the folder, change nothing.
        for argv in ([binary(), "serve", "--data", d.data, d.file], [binary(), "check", "--data", d.data]):
            out = run(argv, expect=1)
            assert "rados" in out.text, out.text
        if log == "local":
            (d.data / "rados.home").rename(d.dir / "home")
            assert "start it there" in run(d.command(), expect=1).text
            (d.dir / "home").rename(d.data / "rados.home")
        d.start()
        same(read(d, 0, 16384, len(second) // 512, tmp_path), second)
