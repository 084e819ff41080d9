"""What happens at the LUN under a cache: it is resized, has news for a start that fails, and is given as a peer."""

from __future__ import annotations

import re
import time
from pathlib import Path

import arrays
from harness import Daemon, MiB
from test_hostcache import LENT, SMALL, HostCache, refused

#: sg3_utils' exit status.
UNIT_ATTENTION = 6


def test_a_resize_of_the_volume_reaches_the_caches_clients(tmp_path: Path) -> None:
    def blocks(cache: HostCache) -> int:
        said = cache.sg("sg_readcap", "--16", "/dev/sg0", expect=None)
        if said.returncode == UNIT_ATTENTION:  # the size changed behind the login: 2A/09, once
            said = cache.sg("sg_readcap", "--16", "/dev/sg0")
        found = re.search(r"Number of logical blocks=(\d+)", said.stdout)
        assert found, said
        return int(found[1])

    data = arrays.noise(64 * 512, 3)
    with Daemon(SMALL, "below") as array, HostCache(array, "write_back", "--watch", "20ms") as cache:
        assert blocks(cache) == 32 * MiB // 512
        arrays.write(cache, 0, 0, data, tmp_path)
        array.cli("volume", "resize", "a", "48MiB")
        deadline = time.monotonic() + 60
        while blocks(cache) != 48 * MiB // 512:
            assert time.monotonic() < deadline, "the cache keeps the old size"
            time.sleep(0.02)
        arrays.write(cache, 0, 40 * MiB // 512, data, tmp_path)
        cache.ask("quiesce")
        arrays.same(arrays.read(array, 0, 40 * MiB // 512, 64, tmp_path), data)
        arrays.same(arrays.read(array, 0, 0, 64, tmp_path), data)


def test_what_a_failed_start_has_heard_is_kept(tmp_path: Path) -> None:
    """The array says POWER ON once; a start that fails behind it leaves a note for the next one."""
    witness = tmp_path / "witness"

    def notes() -> list[Path]:
        return list(tmp_path.glob("*.start"))

    def fails(cache: HostCache) -> None:
        witness.write_text("no mark")
        refused(cache, "witness is damaged")
        witness.unlink()

    with Daemon(SMALL, "below") as array:
        cache = HostCache(array, "write_through", "--witness", witness)
        for _ in range(2):  # the second time the array has nothing more to say
            fails(cache)
            assert len(notes()) == 1
        with cache:
            assert not notes()
            arrays.write(cache, 0, 0, arrays.noise(64 * 512, 3), tmp_path)
            cache.kill()
            fails(cache)
            assert not notes(), "nothing was said to the start that failed last"


def test_a_lun_is_one_thing_to_a_cache(tmp_path: Path) -> None:
    """By another portal, too: the cached LUN would be written over, and one flash is not two copies."""
    data = arrays.noise(MiB, 32)
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as peer:
        arrays.write(array, 0, 0, data, tmp_path)

        def elsewhere(url: str) -> str:
            return url.replace("127.0.0.1", "localhost")

        itself = ["write_back+1", "--peer", f"p={elsewhere(array.url(0))}"]
        twice = ["write_back+2", "--peer", f"p={peer.url(0)}", "--peer"]
        for options in (
            itself,
            [*itself, "--witness", tmp_path / "witness"],
            [*twice, f"q={peer.url(0)}"],
            [*twice, f"q={elsewhere(peer.url(0))}"],
        ):
            refused(HostCache(array, *options), "is also the LUN of peer p")
        arrays.same(arrays.read(array, 0, 0, len(data) // 512, tmp_path), data)
