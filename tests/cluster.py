"""A throw-away Ceph cluster of scripts/ceph.py, and what may happen to its daemons."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import REPO, ToolError, run

SCRIPT = REPO / "scripts" / "ceph.py"
BINARY = REPO / "bin" / "arraysim-rados"


class Ceph:
    """A cluster that ends with this process, whatever ends that; a context manager. Threads may share it."""

    def __init__(self, osds: int = 1, *options: Any) -> None:
        self.osds = osds
        self.script = threading.Lock()  # it answers one at a time
        self.one_osd = threading.Lock()  # who has it may kill one
        self.fault: Exception | None = None  # of a thread of its own
        self.manager = "--manager" in options
        self.argv = [str(a) for a in (SCRIPT, "hold", "--osds", osds, *options)]

    def __enter__(self) -> Ceph:
        missing = [SCRIPT, "missing", *(["--manager"] if self.manager else [])]
        absent = subprocess.run(missing, capture_output=True, text=True).stdout.split()
        if absent:
            raise unittest.SkipTest(f"Ceph is not installed: {' '.join(absent)}; run make rados-test")
        if not BINARY.exists():
            raise unittest.SkipTest(f"{BINARY} does not exist: run make build-rados")
        self.proc = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.about: dict[str, Any] = json.loads(self.proc.stdout.readline())
        except ValueError:
            self.__exit__()
            raise ToolError("the cluster does not come up") from None
        return self

    def __exit__(self, *exc: object) -> None:
        self.proc.stdin.close()
        self.proc.wait(timeout=60)
        self.proc.stdout.close()

    @property
    def pool(self) -> dict[str, str]:
        """Return how a configuration reaches its pool."""
        return {k: self.about[k] for k in ("conf", "keyring", "pool", "user")}

    def do(self, *what: Any) -> Any:
        """Have the script do something, as it says itself, and return the result."""
        with self.script:
            self.proc.stdin.write(json.dumps(what) + "\n")
            self.proc.stdin.flush()
            answer, *error = json.loads(self.proc.stdout.readline())
        if error:
            raise ToolError(f"ceph: {what}: {error[0]}")
        return answer

    def ask(self, prefix: str, **args: Any) -> Any:
        """Ask the monitor as the administrator."""
        return self.do("ask", {"prefix": prefix, **args})

    def signal(self, name: str, number: int) -> None:
        """Send a daemon a signal."""
        os.kill(self.about["pids"][name], number)

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL. An OSD in memory has lost everything then."""
        self.signal(name, signal.SIGKILL)

    def start(self, name: str) -> None:
        """Start a daemon again that has ended."""
        self.about = self.do("start", name)

    def clean(self, timeout: float = 180) -> None:
        """Wait until everything has all of its copies: until then no further OSD may be lost."""
        end = time.monotonic() + timeout
        while True:
            try:
                return self.do("clean", 1)  # and others may ask something in between
            except ToolError:
                if time.monotonic() > end:
                    raise

    def may_lose_one(self, wait: bool) -> bool:
        """Be the only one who may kill an OSD, until refill; False: another one is, and this is not to wait."""
        if not self.one_osd.acquire(timeout=300 if wait else 0):
            if wait:
                raise ToolError("nobody starts an OSD again that was killed")
            return False
        if self.fault:
            raise self.fault
        return True

    def refill(self, name: str) -> None:
        """Start an OSD again. When it has got everything, another one may be killed."""
        self.start(name)
        threading.Thread(target=self._refill).start()

    def _refill(self) -> None:
        try:
            self.clean()
        except Exception as e:
            self.fault = e
        finally:
            self.one_osd.release()

    @contextlib.contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Have daemons stand still for a while."""
        for name in names:
            self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                self.signal(name, signal.SIGCONT)

    def read(self, namespace: str, name: str) -> str:
        """Return the text of an object of the pool."""
        return self.do("read", namespace, name)

    def daemon(self, name: str, *command: Any) -> Any:
        """Send a daemon a command by its admin socket, and return the result."""
        path = Path(self.about["conf"]).parent / "run" / f"{name}.asok"
        return json.loads(run(["ceph", "--admin-daemon", path, *command]).stdout)

    def all_osds(self) -> list[str]:
        """Return the names of all OSDs."""
        return [f"osd.{i}" for i in range(self.osds)]

    def home(self, namespace: str, name: str) -> str:
        """Return the OSD that answers for an object."""
        found = self.ask("osd map", pool=self.about["pool"], object=name, nspace=namespace)
        return f"osd.{found['acting_primary']}"
