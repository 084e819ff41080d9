"""A run's folder and the guests in it: what they get, what they say, how they ended."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import root
from engines import Engine, GuestError, Size

REPO = root.REPO
RESULTS = root.CACHE / "results"
KEPT_RUNS = 10

#: What a guest gets a copy of.
PAYLOAD = [
    "bin/arraysim",
    "bin/handler_arraysim.so",
    "tests",
    "scripts/vm",
    "scripts/dbus",
    "scripts/systemd",
    "scripts/demo.py",
    "docs/targetcli.md",
    "examples/scripts",
    "docs/differences.md",
]


#: Guests of one processor that run on each of the host's.
_taken: Counter[int] = Counter()
_lock = threading.Lock()


@contextmanager
def processor(engine: Engine) -> Iterator[int | None]:
    """Give a guest that has one processor one of the host's, the one that fewest others have; None: all of them.

    Of its processes one runs at a time, and hands over to another one at each system call and each page fault. On two
    processors every second of these waits for the other one to wake.
    """
    if not engine.single:
        yield None
        return
    with _lock:
        cpu = min(sorted(os.sched_getaffinity(0)), key=lambda n: _taken[n])
        _taken[cpu] += 1
    try:
        yield cpu
    finally:
        with _lock:
            _taken[cpu] -= 1


class BootError(GuestError):
    """The guest did not come up."""


class Run:
    """The folder of one call: the payload, copied once so that a build meanwhile does not disturb it, and a folder
    for each guest. RESULTS/last is a link to it."""

    def __init__(self, files: list[str]) -> None:
        self.dir = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}"
        self.payload = self.dir / "payload"
        self.payload.mkdir(parents=True)
        for name in PAYLOAD:
            source, target = REPO / name, self.payload / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".ruff_cache"))
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for file in files:
            (self.payload / "files").mkdir(exist_ok=True)
            shutil.copy(file, self.payload / "files")
        link = RESULTS / f".{self.dir.name}"
        link.symlink_to(self.dir.name)
        link.replace(RESULTS / "last")
        for old in sorted(p for p in RESULTS.iterdir() if p.is_dir() and not p.is_symlink())[:-KEPT_RUNS]:
            # One that has its payload goes on, or was killed.
            if not (old / "payload").exists() or time.time() - old.stat().st_mtime > 86400:
                shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        """Drop the payload; logs and results stay."""
        shutil.rmtree(self.payload, ignore_errors=True)


class Guest:
    """One guest: its folder below the run's, its process.

    The guest sees the folder as /mnt/run: it takes payload/ and env from there and leaves results/, of which
    results/status is the exit status of its command.
    """

    def __init__(self, run: Run, name: str, engine: Engine, size: Size) -> None:
        self.name, self.engine, self.size = name, engine, size
        self.dir = run.dir / name
        self.results = self.dir / "results"
        self.results.mkdir(parents=True)
        self.console = self.results / "console.log"
        shutil.copytree(run.payload, self.dir / "payload", copy_function=os.link)
        self.proc: subprocess.Popen[bytes] | None = None
        self.killed = False

    def kill(self) -> None:
        """End the guest at once, or keep it from beginning. Another thread may call it."""
        self.killed = True
        if self.proc and self.proc.poll() is None:
            os.killpg(self.proc.pid, signal.SIGKILL)

    def prepare(self, command: str, limit: float, environment: Mapping[str, str]) -> None:
        """Say what the guest is to run: a shell command, or "shell" for a console."""
        size = shutil.get_terminal_size()
        env = {"TASK": command, "LIMIT": str(int(limit)), "ROWS": str(size.lines), "COLUMNS": str(size.columns)}
        lines = [f"export {k}={shlex.quote(v)}" for k, v in {**environment, **env}.items()]
        (self.dir / "env").write_text("\n".join([*lines, ""]))

    def shell(self) -> int:
        """Give the terminal to the guest until it ends."""
        with self.console.open("wb") as console:
            argv = self.engine.argv(self.dir, self.size, interactive=True)
            code = subprocess.run(argv, check=False, stderr=console).returncode
        return code or int(self.status() or 0)

    def run(self, limit: float, show: Callable[[float, str], None]) -> int:
        """Boot, pass each line of output to show, return the command's status; GuestError says why there is none."""
        with processor(self.engine) as cpu:
            return self._run(cpu, limit, show)

    def _run(self, cpu: int | None, limit: float, show: Callable[[float, str], None]) -> int:
        start = time.monotonic()
        with self.console.open("wb") as console:
            # A session of its own: Ctrl-C ends it by us, in order, and nothing of it stays behind.
            proc = subprocess.Popen(
                self.engine.argv(self.dir, self.size, interactive=False),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=console,
                start_new_session=True,
            )
        if cpu is not None:
            os.sched_setaffinity(proc.pid, {cpu})  # before it has started any other
        self.proc = proc
        if self.killed:
            self.kill()
        try:
            booted = self.follow(proc, start, limit, show)
        finally:
            try:
                proc.wait(5 if sys.exc_info()[0] is None else 0)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(proc.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            proc.wait()
            shutil.rmtree(self.dir / "payload", ignore_errors=True)
        status = self.status()
        if self.killed:
            raise GuestError("the guest was ended from outside")
        if status is None:
            raise (GuestError if booted else BootError)(
                f"{self.death()}. The end of its console:\n{self.console_tail()}"
            )
        if status == "timeout":
            raise GuestError(f"the guest gave up after {limit:.0f} s; blocked tasks are in dmesg.log and ps.log")
        return int(status)

    def follow(
        self, proc: subprocess.Popen[bytes], start: float, limit: float, show: Callable[[float, str], None]
    ) -> bool:
        """Read the guest's output to its end; report whether it booted."""
        assert proc.stdout is not None
        out = proc.stdout.fileno()
        os.set_blocking(out, False)
        deadline = start + self.engine.boot_limit
        why = f"the guest did not boot within {self.engine.boot_limit:.0f} s"
        pending, booted = b"", False
        with selectors.DefaultSelector() as selector, (self.results / "output.log").open("wb") as log:
            selector.register(out, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    error = GuestError if booted else BootError
                    raise error(f"{why}; it was stopped. The end of its console:\n{self.console_tail()}")
                if not selector.select(min(left, 1)):
                    continue
                data = os.read(out, 65536)
                if not data:
                    return booted
                if not booted:
                    booted = b"guest: up" in pending + data
                    if booted:
                        deadline = time.monotonic() + limit + 30
                        why = f"the guest did not end within {limit:.0f} s, nor stop by itself 30 s later"
                log.write(data)
                *lines, pending = (pending + data).replace(b"\r", b"").split(b"\n")
                for line in lines:
                    show(time.monotonic() - start, line.decode(errors="replace"))

    def status(self) -> str | None:
        """Return what the guest left as its status, None if it left none."""
        file = self.results / "status"
        return file.read_text().strip() if file.exists() else None

    def death(self) -> str:
        """Return why there is no status, as far as the console tells."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        found = re.search(r"(?:Kernel panic|BUG:|Oops).*", text)
        return f"the guest's kernel ended with {found[0]!r}" if found else "the guest ended without a status"

    def console_tail(self) -> str:
        """Return the last words of the kernel."""
        lines = self.console.read_text(errors="replace").splitlines() if self.console.exists() else []
        return "\n".join(f"  {line}" for line in lines[-25:]) or "  (nothing)"
