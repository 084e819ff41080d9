"""hostcache in front of an array's LUN: as a disk of the guest, or behind a portal as another host's disk."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guest import RESULTS, wait
from harness import Daemon, Server, binary, freeze, run


class Cache(Daemon):
    """arraysim hostcache serve in front of a LUN of an array; flash is a file of its own, or a peer's LUN."""

    target = "iqn.2026-01.io.arraysim:hostcache"

    def __init__(self, array: Server, policy: str, *options: Any, lun: int = 0, name: str = "hostcache") -> None:
        super().__init__(None, name)
        self.array, self.policy, self.lun, self.options = array, policy, lun, options
        self.flash: Path | str = self.dir / "flash"
        self.socket = self.dir / "s"

    def command(self) -> list[Any]:
        """Return how to start it."""
        argv = [binary(), "hostcache", "serve", "--backend", self.array.url(self.lun), "--policy", self.policy]
        return [*argv, "--flash", self.flash, "--socket", self.socket, *self.door(), *self.options]

    def door(self) -> list[Any]:
        """Return the options of the door."""
        return ["--listen", f"127.0.0.1:{self.port}"]

    def ask(self, *args: Any) -> Any:
        """Run a policy command and decode its answer."""
        return json.loads(run([binary(), "hostcache", "policy", *args, "--socket", self.socket, "--json"]).stdout)

    def stats(self, *args: Any) -> Any:
        """Return what the cache says of itself."""
        return self.ask("stats", *args)

    def report(self) -> Any:
        """Return the same without a process, which costs a guest as much as a thousand writes."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(self.socket))
            s.sendall(b"GET /v1/cache HTTP/1.0\r\n\r\n")
            with s.makefile("rb") as f:
                return json.loads(f.read().partition(b"\r\n\r\n")[2])

    def await_peers(self, number: int) -> None:
        """Wait until so many peers have everything."""

        def there() -> bool:
            return len(self.report()["state"]["Peers"] or []) == number

        wait(f"{number} peers", there)

    def await_hasty_peer(self) -> None:
        """Wait until the peer has everything, which has a short time.

        If it stands still for longer while it joins it is lost, and joins when the cache starts again.
        """

        def known() -> bool:
            state = self.report()["state"]
            return bool(state["Peers"] or state["LostPeers"])

        for _ in range(3):
            wait("a peer that is there or lost", known)
            if not self.report()["state"]["LostPeers"]:
                break
            self.stop()
            self.start()
        self.await_peers(1)

    def cleanup(self) -> None:
        """Keep the log, remove the rest."""
        with (RESULTS / f"{self.name}.log").open("a") as f:
            f.write(self.log_tail(100000))
        super().cleanup()


class LocalCache(Cache):
    """The same with the kernel's door: tcm_loop makes a disk of the guest of it."""

    def __init__(self, array: Daemon, policy: str, flash: int, *options: Any) -> None:
        super().__init__(array, policy, "--flash-size", flash, *options)

    def door(self) -> list[Any]:
        """Return the options of the door."""
        return ["--tcmu"]


@contextmanager
def held(server: Server) -> Iterator[None]:
    """Stop a process: it refuses nothing and answers nothing.

    While an array is, nothing is destaged, and all that a host writes is dirty in its cache.
    """
    assert server.proc is not None
    freeze(server.proc.pid)
    try:
        yield
    finally:
        server.proc.send_signal(signal.SIGCONT)
