"""`arraysim serve` under systemd: word of its state, signs of life, sockets that it is passed."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import REPO, TARGET, Config, Daemon, Pool, ToolError, Volume, binary, free_port, run

CONFIG = Config(pools=[Pool("p0")], volumes=[Volume("v", 0)])


class Service(Daemon):
    """A daemon that a service manager starts: with variables, and with sockets from descriptor 3 on."""

    def __init__(self, sockets: Sequence[socket.socket] = (), **variables: str) -> None:
        super().__init__(CONFIG, "service")
        self.sockets, self.variables = sockets, variables

    def spawn(self, argv: Sequence[Any]) -> None:
        """Start the process as systemd does: LISTEN_PID is its own."""
        # Descriptors out of the way first: 3 and what follows are theirs in the child.
        high = [fcntl.fcntl(s, fcntl.F_DUPFD, 50) for s in self.sockets]
        moves = " ".join(f"{3 + i}<&{fd} {fd}<&-" for i, fd in enumerate(high))
        script = f'export LISTEN_PID=${{LISTEN_PID:-$$}}; exec "$@" {moves}'
        env = {**os.environ, "LISTEN_FDS": str(len(high)), **self.variables}
        with self.log.open("ab") as out:
            self.proc = subprocess.Popen(
                ["bash", "-c", script, "-", *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=high,
                cwd=self.dir,
                env=env,
            )
        for fd in high:
            os.close(fd)


@contextmanager
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket at which a service manager hears of its services."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "notify"))
        s.settimeout(60)
        yield s


def heard(s: socket.socket, until: str) -> list[str]:
    """Return all lines up to one that begins with until."""
    lines: list[str] = []
    while not any(line.startswith(until) for line in lines):
        lines += s.recv(4096).decode().splitlines()
    return lines


def listener() -> socket.socket:
    """Return a socket that listens, as a socket unit opens it."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", free_port()))
    s.listen(64)
    return s


def port(s: socket.socket) -> int:
    """Return the port of a socket."""
    return s.getsockname()[1]


def luns(at: int) -> str:
    """Return what the portal at a port shows."""
    return run(["iscsi-ls", "-s", f"iscsi://127.0.0.1:{at}"]).stdout


def metrics(at: int) -> str:
    """Return the metrics at a port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{at}/metrics", timeout=60) as r:
        return r.read().decode()


def refused(at: int) -> bool:
    """Tell whether nobody listens on a port."""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", at)) != 0


def test_its_state_is_told(tmp_path: Path) -> None:
    """READY=1 comes when hosts are served, signs of life as often as asked for, STOPPING=1 before the end."""
    with manager(tmp_path) as s, Service(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="400000") as d:
        lines = heard(s, "READY=1")
        assert lines[0] == "STATUS=Recovering the array"
        assert f"STATUS=Serving iSCSI on 127.0.0.1:{d.port}" in lines
        assert "Lun:0" in luns(d.port).replace(" ", "")
        # Before the signs that have come are read away, or those of a pause behind that would come all at once.
        began = time.monotonic()
        while select.select([s], [], [], 0)[0]:
            s.recv(4096)
        for _ in range(5):
            heard(s, "WATCHDOG=1")
        # Half of what was asked for, each; a busy machine delays the reader, and hurries nobody.
        assert time.monotonic() - began > 0.5
        d.proc.send_signal(signal.SIGSTOP)
        while select.select([s], [], [], 0.5)[0]:
            s.recv(4096)
        d.proc.send_signal(signal.SIGCONT)
        heard(s, "WATCHDOG=1")
        d.stop()
        assert "STATUS=Closing sessions" in heard(s, "STOPPING=1")


def test_sockets_are_passed() -> None:
    """Passed sockets stand for the addresses of the configuration, and outlive the daemon."""
    with closing(listener()) as portal, closing(listener()) as page:
        # Their order says nothing where they have names.
        with Service([page, portal], LISTEN_FDNAMES="metrics:portal") as d:
            assert "Lun:0" in luns(port(portal)).replace(" ", "")
            assert "arraysim_build_info" in metrics(port(page))
            assert refused(d.port) and refused(d.metrics_port)
            assert d.cli_json("status")["portal"] == f"127.0.0.1:{port(portal)}"
            d.stop()
            # Whoever comes meanwhile waits, and is served by the next one.
            early = socket.create_connection(("127.0.0.1", port(page)), 60)
            early.sendall(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            d.start()
            assert early.recv(16).startswith(b"HTTP/1.0 200")
            early.close()
        # Without names the first is the portal's.
        with Service([portal, page]):
            assert "Lun:0" in luns(port(portal)).replace(" ", "")
            assert "arraysim_build_info" in metrics(port(page))
        # The portal's alone: the other address is the configuration's.
        with Service([portal]) as d:
            assert "Lun:0" in luns(port(portal)).replace(" ", "")
            assert "arraysim_build_info" in metrics(d.metrics_port)


def test_sockets_of_another_process_are_left_alone() -> None:
    """What is meant for a process that started this one is not taken."""
    with closing(listener()) as portal, Service([portal], LISTEN_PID="1") as d:
        assert "Lun:0" in luns(d.port).replace(" ", "")


@pytest.mark.parametrize(
    ("names", "unix", "says"),
    [
        ("page", False, r'nothing listens on a passed socket "page"; set FileDescriptorName= to portal, or to metrics'),
        ("portal:portal", False, r"2 sockets were passed for the iSCSI portal, which has 1 addresses"),
        ("metrics:metrics", False, r'nothing listens on a passed socket "metrics"; .* for one of them'),
        ("portal", True, r'the passed socket "portal" is not TCP'),
    ],
    ids=["name", "portals", "metrics", "unix"],
)
def test_sockets_that_are_of_no_use_are_refused(names: str, unix: bool, says: str, tmp_path: Path) -> None:
    """The daemon does not start half deaf, and has made no array then."""
    sockets = [listener() for _ in names.split(":")]
    if unix:
        sockets = [socket.socket(socket.AF_UNIX)]
        sockets[0].bind(str(tmp_path / "socket"))
        sockets[0].listen()
    d = Service(sockets, LISTEN_FDNAMES=names)
    try:
        with pytest.raises(ToolError, match="ended with 1"):
            d.start()
        assert re.search(f"^arraysim: .*{says}", d.log_tail(), re.M), d.log_tail()
        assert not d.data.exists()
    finally:
        if d.alive():
            d.kill()
        d.cleanup()
        for s in sockets:
            s.close()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not installed")
def test_systemd_starts_it_when_a_host_comes() -> None:
    """systemd's own tool opens both sockets and starts the daemon at the first connection."""
    d, portal, page = Service(), free_port(), free_port()
    activate = ["systemd-socket-activate", "-l", f"127.0.0.1:{portal}", "-l", f"127.0.0.1:{page}"]
    try:
        Daemon.spawn(d, [*activate, "--fdname=portal:metrics", binary(), *d.command()[1:]])
        deadline = time.monotonic() + 60
        while "Listening on" not in d.log_tail() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not d.data.exists()
        assert "Lun:0" in luns(portal).replace(" ", "")
        assert "arraysim_build_info" in metrics(page)
        d.stop()
    finally:
        if d.alive():
            d.kill()
        d.cleanup()


class Manager:
    """systemd's own service manager, as a user's, with a folder /run that nobody else sees.

    It runs the unit that is shipped, sandbox and all, but for what only a system's manager has: users and a
    user namespace. Paths and ports are the test's.
    """

    #: Where the units, the state and the binary are: no sandbox hides this.
    HOME = "/run/home"
    LEFT_OUT = r"(?m)^(DynamicUser|PrivateUsers|EnvironmentFile|Wants|After)=.*\n"

    def __init__(self, folder: Path, drop_in: str = "") -> None:
        self.folder, self.portal, self.page = folder, free_port(), free_port()
        (folder / "systemd/user").mkdir(parents=True)
        for unit in (REPO / "scripts/systemd").glob("arraysim*"):
            text = re.sub(self.LEFT_OUT, "", unit.read_text())
            text = text.replace("/usr/local/bin", f"{self.HOME}/bin").replace("/var/lib", self.HOME)
            text = text.replace("127.0.0.1:3260", f"127.0.0.1:{self.portal}")
            text = text.replace("127.0.0.1:9400", f"127.0.0.1:{self.page}")
            (folder / "systemd/user" / unit.name).write_text(text)
        (folder / "systemd/user/arraysim.service.d").mkdir()
        # There is no journal to write to.
        output = f"[Service]\nStandardOutput=append:{self.HOME}/service.log\nStandardError=inherit\n"
        (folder / "systemd/user/arraysim.service.d/test.conf").write_text(output + drop_in)
        (folder / "bin").mkdir()
        shutil.copy(binary(), folder / "bin")
        # What a sandbox hides, root's manager covers by nodes that a boot would have made.
        script = """set -e; mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/system /run/manager /run/home
            chmod 700 /run/manager
            mkdir -p /run/systemd/inaccessible/dir; cd /run/systemd/inaccessible; touch reg; mkfifo fifo
            mknod chr c 0 0 || true; mknod blk b 0 0 || true
            cd /; cp -r "$1"/. /run/home; exec /lib/systemd/systemd --user --unit=basic.target"""
        env = {"XDG_RUNTIME_DIR": "/run/manager", "XDG_CONFIG_HOME": self.HOME, "PATH": os.environ["PATH"]}
        self.log = folder / "log"
        with self.log.open("wb") as out:
            self.proc = subprocess.Popen(
                ["unshare", "-m", "--propagation", "private", "bash", "-c", script, "-", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**env, "SYSTEMD_LOG_TARGET": "console"},
            )

    def ctl(self, *args: str, expect: int | None = 0) -> str:
        """Run systemctl."""
        inside = ["nsenter", "-m", "-t", self.proc.pid, "env", "XDG_RUNTIME_DIR=/run/manager", "systemctl", "--user"]
        return run([*inside, *args], expect=expect).stdout

    def show(self, name: str) -> str:
        """Return a property of the service."""
        return self.ctl("show", "arraysim.service", "--value", "-p", name).strip()

    def said(self) -> str:
        """Return what the manager and the service have said."""
        files = [f"{self.HOME}/service.log"]
        inside = ["nsenter", "-m", "-t", self.proc.pid, "cat", *files]
        state = self.ctl("status", "--no-pager", "arraysim*", expect=None)
        return f"{state}\n{run(inside, expect=None).text}\n{self.log.read_text()}"

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        patience = 240  # two programs have to start for each look
        deadline = time.monotonic() + patience
        while not holds():
            if time.monotonic() > deadline or self.proc.poll() is not None:
                raise ToolError(f"{what}: not within {patience} s:\n{self.said()}")
            time.sleep(0.1)

    def __enter__(self) -> Manager:
        try:
            self.wait("systemd runs", lambda: "active" in self.ctl("is-active", "basic.target", expect=None))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if exc and exc[0] is not None:
            print(self.said())
        self.proc.terminate()  # a user's manager stops its services and ends
        try:
            self.proc.wait(60)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_systemd_runs_the_unit(tmp_path: Path) -> None:
    """The shipped unit in its sandbox under systemd: started by a host, ready, watched, restarted, stopped."""
    patience = 16  # of the watchdog, in seconds: a busy machine keeps no daemon waiting for half of that
    with Manager(tmp_path, f"[Service]\nWatchdogSec={patience}s\n") as m:
        m.ctl("start", "arraysim-portal.socket", "arraysim-metrics.socket")
        assert m.show("ActiveState") == "inactive"
        assert "Lun:0" in luns(m.portal).replace(" ", "")
        m.wait("ready", lambda: m.show("SubState") == "running")
        assert m.show("StatusText") == f"Serving iSCSI on 127.0.0.1:{m.portal}"
        assert "arraysim_build_info" in metrics(m.page)
        # The sandbox is there: no new privileges, and a filter of system calls.
        text = Path(f"/proc/{m.show('MainPID')}/status").read_text()
        assert re.search(r"(?m)^NoNewPrivs:\s+1$", text) and re.search(r"(?m)^Seccomp:\s+2$", text)
        assert re.search(r"(?m)^CapEff:\s+0+$", text)
        time.sleep(patience + 2)
        assert m.show("NRestarts") == "0" and m.show("Result") == "success"

        os.kill(int(m.show("MainPID")), signal.SIGSTOP)
        # Where a start has no processor for longer than the watchdog waits, there is another one behind it.
        m.wait("restarted", lambda: int(m.show("NRestarts")) >= 1 and m.show("SubState") == "running")
        # TEST UNIT READY, which iscsi-ls sends, would hear of the restart: DEVICE INTERNAL RESET OCCURRED.
        assert "ARRAYSIM" in run(["iscsi-inq", f"iscsi://127.0.0.1:{m.portal}/{TARGET}/0"]).stdout

        m.ctl("stop", "arraysim-portal.socket", "arraysim-metrics.socket", "arraysim.service")
        assert m.show("Result") == "success", m.log.read_text()
        assert refused(m.portal) and refused(m.page)
