"""An array in a Ceph pool: the real daemon on a throw-away cluster of one OSD in memory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from arrays import noise, read, same, write
from harness import REPO, Config, Daemon, Mdisk, MiB, Pool, Volume, binary, run

SCRIPT = REPO / "scripts" / "ceph.py"
BINARY = REPO / "bin" / "arraysim-rados"


pytestmark = pytest.mark.proof  # make rados-test


@dataclass
class InPool(Config):
    """An array in a pool."""

    rados: dict[str, str] = field(default_factory=dict)

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        """Return the configuration file's contents."""
        return {**super().document(data, portal, metrics), "store": "rados", "rados": self.rados}


class RadosDaemon(Daemon):
    """The program that knows librados."""

    def command(self) -> list[Any]:
        """Return how to start it."""
        return [BINARY, *super().command()[1:]]


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
        yield {k: about[k] for k in ("conf", "keyring", "pool", "user")}
    finally:
        proc.stdin.close()
        proc.wait(timeout=60)
        proc.stdout.close()


def array(cluster: dict[str, str], log: str) -> InPool:
    pool = Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)])
    volumes = [Volume("v0", 0, pool="p0", size=64 * MiB)]
    return InPool([pool], volumes, cache=16 * MiB, rados={**cluster, "namespace": f"array-{log}", "log": log})


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
