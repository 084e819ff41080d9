"""Starts arraysim (and Debian's tgtd, for comparison) and runs tools against it.

Only the standard library is used, so that the scripts of this repository can
import this module without the virtual environment of the tests. Everything
listens on 127.0.0.1 on ports that the system hands out.

Set ARRAYSIM_BIN to test another binary than bin/arraysim, ARRAYSIM_KEEP=1 to
keep the data directories, and ARRAYSIM_SHM to put them elsewhere than on
/dev/shm. With ARRAYSIM_CEPH_CONF, as `scripts/ceph.py run` sets it, arrays of
files are kept in that cluster's pool instead, each in a namespace of its own.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from scrape import Metrics

REPO = Path(__file__).resolve().parents[1]
CACHE = REPO / ".cache"
TARGET = "iqn.2026-01.io.arraysim:array"

KiB, MiB, GiB, TiB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

#: C sources of the tools: name -> (source, extra compiler arguments).
C_TOOLS: dict[str, tuple[str, list[str]]] = {
    "sgshim.so": ("scripts/sgshim/sgshim.c", ["-fPIC", "-shared", "-ldl"]),
    "bench": ("scripts/bench/bench.c", []),
    "torture": ("scripts/torture/torture.c", []),
}


class ToolError(AssertionError):
    """A tool ended otherwise than expected; the text shows how to repeat it."""


def tool(name: str) -> Path:
    """Compile a C tool of this repository if it is out of date; return its path."""
    source, extra = C_TOOLS[name]
    src, out = REPO / source, CACHE / "tools" / name
    newest = max(f.stat().st_mtime for f in src.parent.glob("*.[ch]"))
    if not out.exists() or out.stat().st_mtime < newest:
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(f"{name}.{os.getpid()}.{threading.get_ident()}")  # threads may want it at once
        run(["gcc", "-O2", "-g", "-Wall", "-Wextra", "-o", part, src, *extra, "-liscsi"])
        part.replace(out)
    return out


def binary() -> Path:
    """Return the arraysim binary that is under test."""
    # Whole: daemons have working directories of their own.
    path = Path(os.environ.get("ARRAYSIM_BIN", REPO / "bin" / "arraysim")).absolute()
    if not path.exists():
        raise ToolError(f"{path} does not exist: run `make build` first")
    return path


@dataclass
class Result:
    """What a command printed, as it came, and how it ended; returncode None means timeout."""

    command: str
    returncode: int | None
    raw: bytes  # stdout
    raw_stderr: bytes
    seconds: float

    # Most that is long is never read as text.

    @cached_property
    def stdout(self) -> str:
        """What the command printed as its result."""
        return self.raw.decode(errors="replace")

    @cached_property
    def stderr(self) -> str:
        """What the command said beside it."""
        return self.raw_stderr.decode(errors="replace")

    @property
    def text(self) -> str:
        """All output."""
        return self.stdout + self.stderr

    def __str__(self) -> str:
        end = "timed out" if self.returncode is None else f"exit code {self.returncode}"
        tail = "\n".join(self.text.splitlines()[-60:])
        return f"$ {self.command}\n{tail}\n[{end} after {self.seconds:.1f} s]"


def run(
    command: Sequence[Any],
    *,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    expect: int | None = 0,
) -> Result:
    """Run a command; raise ToolError unless it exits with expect (None: any way)."""
    __tracebackhide__ = True  # pytest shows the caller
    argv = [str(c) for c in command]
    shown = shlex.join([f"{k}={v}" for k, v in (env or {}).items()] + argv)
    if shutil.which(argv[0]) is None:
        raise ToolError(f"{argv[0]} is not installed: run scripts/setup.sh\n$ {shown}")
    start = time.monotonic()
    if env and "LD_PRELOAD" in env:
        # Only the tool itself gets the shim, nothing between us and it.
        argv = ["env", *(f"{k}={v}" for k, v in env.items()), *argv]
        env = None
    try:
        p = subprocess.run(
            argv,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
        )
        code, out, err = p.returncode, p.stdout, p.stderr
    except subprocess.TimeoutExpired as e:
        code, out, err = None, e.stdout or b"", e.stderr or b""
    r = Result(shown, code, out, err, time.monotonic() - start)
    if expect is not None and code != expect:
        raise ToolError(f"expected exit code {expect}:\n{r}")
    return r


#: The ports that this process has given out, each as the socket whose name says so to all processes of the machine:
#: a daemon that has not started yet, or is down, does not listen on its own.
_given: list[socket.socket] = []


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, and that was not given out before.

    It is below the ephemeral range: an outgoing connection that is given the same
    port would keep a daemon from listening there, even while it waits to end.
    """
    while True:
        port = random.randrange(10000, 32000)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0arraysim tests: port {port}")
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _given.append(claim)
        return port


def freeze(pid: int, patience: float = 60) -> None:
    """Stop a process, and return when none of its threads runs any more: on a busy machine that is later."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + patience
    while not all(_stopped(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat")):
        if time.monotonic() > deadline:
            raise ToolError(f"process {pid} does not stop")
        time.sleep(0.002)


def _stopped(stat: Path) -> bool:
    """Tell whether a thread stands still, or is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "TtZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def scratch(name: str) -> Path:
    """Make a temporary directory, in memory where there is such a place."""
    shm = os.environ.get("ARRAYSIM_SHM", "/dev/shm")
    base = shm if os.access(shm, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"arraysim-{name}-", dir=base))


@dataclass
class Mdisk:
    """A back-end disk; bandwidth in bytes/s and iops are limits, 0 is none."""

    name: str
    size: int = 8 * GiB
    bandwidth: int = 0
    iops: int = 0


@dataclass
class Pool:
    """A storage pool; copy says how offloaded copies inside it are made."""

    name: str
    copy: str = "reference"
    mdisks: list[Mdisk] = field(default_factory=list)
    io_group: int | None = None


@dataclass
class Volume:
    """A volume, exported as lun to initiators (none named: to all)."""

    name: str
    lun: int | None
    pool: str = "p0"
    size: int = 256 * MiB
    thin: bool = True
    block_size: int = 512
    initiators: list[str] = field(default_factory=list)
    removable: bool = False
    write_protect: bool = False


@dataclass
class Config:
    """An array. document() is the one place that knows the keys of the file."""

    pools: list[Pool] = field(default_factory=lambda: [Pool("p0")])
    volumes: list[Volume] = field(default_factory=lambda: [Volume("v0", 0)])
    cache: int = 32 * MiB
    store: str = "files"
    chap: tuple[str, str] | None = None
    allow: list[str] = field(default_factory=list)
    set_groups: list[str] = field(default_factory=list)
    io_groups: int = 1

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        """Return the configuration file's contents."""
        doc: dict[str, Any] = {
            "data": str(data / "data"),
            "store": self.store,
            "cache": {"size": self.cache},
            "portal": {"listen": f"127.0.0.1:{portal}", "target": TARGET},
            "metrics": {"listen": f"127.0.0.1:{metrics}"},
            "pools": [self._pool(p) for p in self.pools],
            "volumes": [self._volume(v) for v in self.volumes],
        }
        if self.chap:
            secret = data / "chap.secret"
            secret.write_text(self.chap[1] + "\n")
            secret.chmod(0o600)
            doc["portal"]["chap"] = {"user": self.chap[0], "secret_file": str(secret)}
        if self.allow:
            doc["portal"]["allow"] = self.allow
        if self.set_groups:
            doc["portal"]["set_groups"] = self.set_groups
        if self.io_groups > 1:
            doc["io_groups"] = self.io_groups
        if (conf := os.environ.get("ARRAYSIM_CEPH_CONF")) and self.store == "files":
            about = {"conf": conf, "user": "arraysim", "pool": "arraysim", "namespace": data.name, "log": "replicated"}
            doc |= {"store": "rados", "rados": about}
        return doc

    @staticmethod
    def _pool(p: Pool) -> dict[str, Any]:
        mdisks = [{k: v for k, v in vars(m).items() if v} for m in p.mdisks or [Mdisk(f"{p.name}-m0")]]
        group = {} if p.io_group is None else {"io_group": p.io_group}
        return {"name": p.name, "copy": p.copy, "mdisks": mdisks, **group}

    @staticmethod
    def _volume(v: Volume) -> dict[str, Any]:
        d: dict[str, Any] = {"name": v.name, "pool": v.pool, "size": v.size, "thin": v.thin, "block_size": v.block_size}
        if v.lun is not None:
            d["export"] = {"lun": v.lun, "initiators": v.initiators}
        for flag in ("removable", "write_protect"):
            if getattr(v, flag):
                d[flag] = True
        return d


class Server:
    """A process that serves iSCSI on 127.0.0.1; a context manager."""

    target = TARGET

    def __init__(self, name: str) -> None:
        self.name = name
        self.dir = scratch(name)
        self.port = free_port()
        self.log = self.dir / "log"
        self.proc: subprocess.Popen[bytes] | None = None

    def spawn(self, argv: Sequence[Any]) -> None:
        """Start the process with its output in the log."""
        with self.log.open("ab") as out:
            self.proc = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.dir,
                env={**os.environ, "STATE_DIRECTORY": str(self.dir)},  # what hosts keep from start to start
            )

    def log_tail(self, lines: int = 60) -> str:
        """Return the end of the process's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self.proc is not None and self.proc.poll() is None

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has used."""
        assert self.proc is not None
        fields = Path(f"/proc/{self.proc.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, sig: int, timeout: float = 120) -> int:
        """Send the process a signal, wait until it is gone, return its exit code."""
        assert self.proc is not None
        if self.proc.poll() is None:
            self.proc.send_signal(sig)
        try:
            return self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise ToolError(f"{self.name} did not end within {timeout} s of signal {sig}:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """End the process as a crash would."""
        self.signal(signal.SIGKILL)

    def url(self, lun: int = 0, chap: tuple[str, str] | None = None) -> str:
        """Return the URL that libiscsi's tools and qemu-img take."""
        auth = f"{chap[0]}%{chap[1]}@" if chap else ""
        return f"iscsi://{auth}127.0.0.1:{self.port}/{self.target}/{lun}"

    def portal(self, chap: tuple[str, str] | None = None) -> str:
        """Return the URL for discovery."""
        auth = f"{chap[0]}%{chap[1]}@" if chap else ""
        return f"iscsi://{auth}127.0.0.1:{self.port}"

    def sg(self, command: str, *args: Any, **kw: Any) -> Result:
        """Run an sg3_utils command; /dev/sgN is LUN N, /dev/sdN too, as a block device.

        urls says what others of these names are. initiator, isid and digest go to the shim, the
        rest to run().
        """
        __tracebackhide__ = True
        env = {"LD_PRELOAD": str(tool("sgshim.so"))}
        for key in ("initiator", "isid", "digest"):
            if (value := kw.pop(key, None)) is not None:
                env["ARRAYSIM_" + key.upper()] = str(value)
        chap, urls = kw.pop("chap", None), kw.pop("urls", {})
        argv = [str(a) for a in (command, *args)]
        names = dict.fromkeys(re.findall(r"/dev/s[gd]\d+", " ".join(argv)))
        env["ARRAYSIM_SG"] = ";".join(f"{n}={urls.get(n) or self.url(int(n[7:]), chap)}" for n in names)
        return run(argv, env=env, **kw)

    def cleanup(self) -> None:
        """Remove what the server left on disk."""
        if not os.environ.get("ARRAYSIM_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)


class Daemon(Server):
    """arraysim serve, with a data directory of its own."""

    def __init__(self, config: Config | None = None, name: str = "test") -> None:
        """Prepare a daemon; without a configuration it takes its built-in one."""
        super().__init__(name)
        self.config = config
        self.metrics_port = free_port()
        self.data = self.dir / "data"
        self.file = self.dir / "config.yaml"

    def command(self) -> list[Any]:
        """Write the configuration file (JSON is YAML); return how to start the daemon."""
        argv = [binary(), "serve", "--data", self.data]
        if self.config is None:
            return [*argv, "--listen", f"127.0.0.1:{self.port}", "--metrics", f"127.0.0.1:{self.metrics_port}"]
        doc = self.config.document(self.dir, self.port, self.metrics_port)
        self.file.write_text(json.dumps(doc, indent=2) + "\n")
        return [*argv, self.file]

    def start(self, timeout: float = 180) -> Daemon:
        """Start the daemon and wait until it says that it is ready."""
        assert not self.alive(), "the daemon runs already"
        offset = self.log.stat().st_size if self.log.exists() else 0
        self.spawn(self.command())
        deadline = time.monotonic() + timeout
        while not re.search(rb"^ready\b", self.log.read_bytes()[offset:], re.M):
            if not self.alive():
                raise ToolError(f"arraysim ended with {self.proc.returncode} at its start:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ToolError(f"arraysim was not ready after {timeout} s:\n{self.log_tail()}")
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """End the daemon in good order; a crash or a complaint is a failure."""
        if self.proc is None:
            return
        code = self.signal(signal.SIGTERM, 60)
        text = self.log.read_text(errors="replace")
        if code != 0 or re.search(r"^panic:|DATA RACE|^fatal error:", text, re.M):
            raise ToolError(f"arraysim ended with {code}:\n{self.log_tail(120)}")

    def __enter__(self) -> Daemon:
        try:
            return self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None:
                self.stop()
            elif self.alive():
                self.kill()
        finally:
            self.cleanup()

    def metrics(self) -> Metrics:
        """Scrape /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as r:
            return Metrics(r.read().decode())

    def cli(self, *args: Any, **kw: Any) -> Result:
        """Run an arraysim command against this daemon."""
        __tracebackhide__ = True
        return run([binary(), *args, "--data", self.data], **kw)

    def cli_json(self, *args: Any) -> Any:
        """Run an arraysim command with --json and decode what it prints."""
        return json.loads(self.cli(*args, "--json").stdout)

    def events(self) -> list[dict[str, Any]]:
        """Return what the daemon has told since its start, the oldest first."""
        return [json.loads(line) for line in self.cli("events", "--json").stdout.splitlines()]


class Tgtd(Server):
    """Debian's tgtd with RAM-backed files, the yardstick of the benchmarks."""

    target = "iqn.2026-01.io.arraysim:tgt"

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__("tgtd")
        self.sizes = sizes
        # The number names tgtd's control socket: unique as the port is.
        self.control = str(self.port % 32768)

    def _adm(self, *args: Any) -> None:
        run(["tgtadm", "-C", self.control, "--lld", "iscsi", *args])

    def __enter__(self) -> Tgtd:
        self.spawn(["tgtd", "-f", "-C", self.control, "--iscsi", f"portal=127.0.0.1:{self.port}"])
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or not self.alive():
                    raise ToolError(f"tgtd did not start:\n{self.log_tail()}") from None
                time.sleep(0.05)
        self._adm("--op", "new", "--mode", "target", "--tid", 1, "-T", self.target)
        for i, size in enumerate(self.sizes):
            disk = self.dir / f"disk{i}"
            with disk.open("wb") as f:
                f.truncate(size)
            unit = ["--mode", "logicalunit", "--tid", 1, "--lun", i + 1]
            self._adm("--op", "new", *unit, "-b", disk, "--bstype", "rdwr")
            self._adm("--op", "update", *unit, "--params", "thin_provisioning=1")
        self._adm("--op", "bind", "--mode", "target", "--tid", 1, "-I", "ALL")
        return self

    def __exit__(self, *exc: object) -> None:
        if self.alive():
            self.kill()
        self.cleanup()

    def url(self, lun: int = 0, chap: tuple[str, str] | None = None) -> str:
        """As in Server; tgtd keeps LUN 0 for itself."""
        return super().url(lun + 1, chap)
