"""The caching layer for real: an array, a cache in front of it on a flash file,
and clients on the cache's portal.

The torture client models every sector; ARRAYSIM_KILLS and ARRAYSIM_SEED work as
in test_kill.py. What it writes is held against the array's own copy, too.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import arrays
import pytest
from harness import Config, Daemon, MiB, ToolError, Volume, binary, freeze, run
from test_kill import Torture

KILLS = int(os.environ.get("ARRAYSIM_KILLS", "6"))
SMALL = Config(volumes=[Volume("a", 0, size=32 * MiB)], cache=16 * MiB)


class HostCache(Daemon):
    """arraysim hostcache serve in front of LUN 0 of an array."""

    target = "iqn.2026-01.io.arraysim:hostcache"

    def __init__(self, array: Daemon, policy: str, *options: Any, name: str = "hostcache") -> None:
        super().__init__(None, name)
        self.array = array
        self.policy = policy
        self.options = options
        self.flash: Path | str = self.dir / "flash"
        # A socket's path has 107 bytes at most; scratch directories keep to that.
        self.socket = self.dir / "s"

    def command(self) -> list[Any]:
        argv = [
            binary(),
            "hostcache",
            "serve",
            "--backend",
            self.array.url(0),
            "--flash",
            self.flash,
            "--flash-size",
            "8MiB",
        ]
        # A peer that a busy machine keeps from answering for longer than that is left out for good: ten seconds, the
        # default, are few. What a test says of it comes behind, and counts.
        argv += ["--policy", self.policy, "--peer-timeout", "60s"]
        argv += ["--listen", f"127.0.0.1:{self.port}", "--socket", self.socket, *self.options]
        return argv

    def ask(self, *args: Any) -> Any:
        """Run a policy command and decode its answer."""
        return json.loads(run([binary(), "hostcache", "policy", *args, "--socket", self.socket, "--json"]).stdout)

    def stats(self) -> Any:
        return self.ask("stats")


def test_writes_end_on_flash_and_a_quiesce_brings_them_below(tmp_path: Path) -> None:
    data = arrays.noise(2 * MiB, 7)
    with Daemon(SMALL, "below") as array, HostCache(array, "write_back") as cache:
        assert cache.stats()["effective_policy"] == "write_back"
        arrays.write(cache, 0, 64, data, tmp_path)
        s = cache.stats()
        assert s["views"]["LocalFlash"]["Write"]["Bytes"] == len(data)
        token = cache.ask("quiesce", "--expire", "60s")["token"]
        s = cache.stats()
        assert s["effective_policy"] == "write_through" and s["state"]["DirtySectors"] == 0
        # A backup that reads the LUN beside the cache finds everything.
        arrays.same(arrays.read(array, 0, 64, len(data) // 512, tmp_path), data)
        more = arrays.noise(MiB, 8)
        arrays.write(cache, 0, 0, more, tmp_path)
        arrays.same(arrays.read(array, 0, 0, len(more) // 512, tmp_path), more)
        assert cache.ask("resume", token)["effective_policy"] == "write_back"
        arrays.same(arrays.read(cache, 0, 0, len(more) // 512, tmp_path), more)
        assert cache.ask("set", "off")["effective_policy"] == "off"
        assert cache.ask("set", "write_through")["effective_policy"] == "write_through"
        arrays.read(cache, 0, 0, 2048, tmp_path)
        arrays.read(cache, 0, 0, 2048, tmp_path)
        assert cache.stats()["views"]["LocalFlash"]["Read"]["IOs"] > 0


def test_a_cache_moves_and_is_dropped(tmp_path: Path) -> None:
    data = arrays.noise(2 * MiB, 7)
    sectors = len(data) // 512
    with Daemon(SMALL, "below") as array, HostCache(array, "write_through", name="here") as here:
        arrays.write(here, 0, 64, data, tmp_path)
        there = HostCache(array, "write_through", "--initiator", "iqn.2026-01.io.arraysim:there", name="there")
        with there:
            hostcache = [binary(), "hostcache"]
            moved = json.loads(
                run([*hostcache, "migrate", "--from", here.socket, "--to", there.socket, "--json"]).stdout
            )
            assert moved["bytes"] == len(data)
            assert 0 < moved["num_blocks_currently_cached"] < moved["num_blocks"]
            arrays.same(arrays.read(there, 0, 64, sectors, tmp_path), data)
            assert there.stats()["views"]["Datastore"]["Read"]["IOs"] == 0
            text = run([*hostcache, "stats", "--socket", there.socket]).stdout
            cached = int(re.search(r"numBlocksCurrentlyCached: (\d+)", text)[1])  # type: ignore[index]
            for line in (
                f"numBlocks: {moved['num_blocks']}",
                "Evict:avgNumBlocksPerOp: unknown",
                "Evict:numBlocks: 0",
                "vFlash:cacheHitPercentage: 100",
            ):
                assert re.search(rf"^ +{line}$", text, re.M), text
            assert cached == moved["num_blocks_currently_cached"]
            dropped = json.loads(run([*hostcache, "drop", "--socket", there.socket, "--json"]).stdout)
            assert dropped == {"dropped_blocks": cached, "left_blocks": 0, "block_size_kb": 4}
            arrays.same(arrays.read(there, 0, 64, sectors, tmp_path), data)
            assert there.stats()["views"]["Datastore"]["Read"]["IOs"] > 0


def test_a_quiesce_that_is_over_too_early_gives_no_token(tmp_path: Path) -> None:
    with Daemon(SMALL, "below") as array, HostCache(array, "write_back") as cache:
        assert array.proc is not None
        freeze(array.proc.pid)
        try:
            arrays.write(cache, 0, 64, arrays.noise(64 * 1024, 7), tmp_path)
            with pytest.raises(ToolError, match="before everything was destaged"):
                cache.ask("quiesce", "--expire", "1s")
        finally:
            array.proc.send_signal(signal.SIGCONT)
        assert cache.stats()["state"]["Quiesced"] == 0
        assert cache.ask("quiesce")["token"] > 0


def test_a_peer_has_what_a_lost_host_acknowledged(tmp_path: Path) -> None:
    lent = Config(volumes=[Volume("flash", 0, size=8 * MiB)], cache=16 * MiB)
    data = arrays.noise(MiB, 9)
    with Daemon(SMALL, "below") as array, Daemon(lent, "lent") as peer:
        with HostCache(array, "write_back+1", "--peer", f"p={peer.url(0)}", "--key", 17, name="lost") as cache:
            wait_for_peers(cache, "p")
            arrays.write(cache, 0, 128, data, tmp_path)
            cache.kill()
            taker = HostCache(array, "write_through", "--key", 18, "--take-over", 17, name="taker")
            taker.flash = peer.url(0)
            with taker:
                arrays.same(arrays.read(taker, 0, 128, len(data) // 512, tmp_path), data)
                taker.ask("quiesce")
                arrays.same(arrays.read(array, 0, 128, len(data) // 512, tmp_path), data)
                # The lost host comes back, and is kept out: it must not destage over the taker's writes.
                refused(cache, "another host has reserved")


LENT = Config(volumes=[Volume("flash", 0, size=8 * MiB)], cache=16 * MiB)


def own_key(cache: HostCache) -> str:
    """Return the reservation key by which a cache can be taken over; it says so when it starts."""
    (key,) = set(re.findall(r"names this one by its key.* key=(0x[0-9a-f]+)", cache.log_tail(1000)))
    return key


def taker_of(array: Daemon, flash: str, key: str) -> HostCache:
    taker = HostCache(array, "write_through", "--initiator", "iqn.2026-01.test:taker", "--take-over", key, name="taker")
    taker.flash = flash
    return taker


def refused(cache: HostCache, why: str) -> None:
    """Start a cache that has to be refused: it ends by itself, and says why."""
    cache.spawn(cache.command())
    assert cache.proc is not None
    try:
        assert cache.proc.wait(60) == 1
        assert why in cache.log_tail(1)
    finally:
        cache.kill()
        cache.proc = None


def wait_for_peers(cache: HostCache, *names: str) -> None:
    deadline = time.monotonic() + 60
    while cache.stats()["state"]["Peers"] != list(names):
        assert time.monotonic() < deadline, cache.stats()["state"]
        time.sleep(0.05)


@pytest.mark.slow
def test_a_single_peer_that_was_left_out_is_not_taken_over(tmp_path: Path) -> None:
    """By default: the key that the host has registered at the LUN says how new a flash must be."""
    old, new = arrays.noise(MiB, 21), arrays.noise(MiB, 22)
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as peer:
        options = ["--peer", f"p={peer.url(0)}", "--peer-timeout", "8s"]
        with HostCache(array, "write_back+1", *options, name="lost") as cache:
            wait_for_peers(cache, "p")
            key = own_key(cache)
            arrays.write(cache, 0, 0, old, tmp_path)
            assert peer.proc is not None
            freeze(peer.proc.pid)
            try:
                arrays.write(cache, 0, 0, new, tmp_path)
                cache.ask("quiesce")
            finally:
                peer.proc.send_signal(signal.SIGCONT)
            cache.kill()
            refused(taker_of(array, peer.url(0), key), "left out of the cache")
            arrays.same(arrays.read(array, 0, 0, len(new) // 512, tmp_path), new)
            # Nobody was fenced, so the host comes back; its peer joins anew, and is good for a take-over then. The
            # time-out of before is short for a peer on a busy machine: one that misses it is left out for good.
            cache.options = tuple(options[:2])
            cache.start()
            arrays.same(arrays.read(cache, 0, 0, len(new) // 512, tmp_path), new)
            wait_for_peers(cache, "p")
            arrays.write(cache, 0, 0, old, tmp_path)
            assert cache.stats()["state"]["Peers"] == ["p"]
            cache.kill()
            cache.proc = None
            with taker_of(array, peer.url(0), key) as taker:
                arrays.same(arrays.read(taker, 0, 0, len(old) // 512, tmp_path), old)
                arrays.write(taker, 0, 0, new, tmp_path)
                taker.stop()
                # Nobody holds the LUN now. The lost host's flash is not the newest, and its start keeps nobody out.
                refused(cache, "left out of the cache")
                taker.options = ("--initiator", "iqn.2026-01.test:taker")
                taker.start()
                arrays.same(arrays.read(taker, 0, 0, len(new) // 512, tmp_path), new)


def test_a_reservation_by_default_ends_with_a_clean_stop(tmp_path: Path) -> None:
    """What it says of the flash stays: the cache's own flash is refused when it was begun anew elsewhere."""
    data = arrays.noise(MiB, 25)
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as peer:
        with HostCache(array, "write_back+1", "--peer", f"p={peer.url(0)}") as cache:
            wait_for_peers(cache, "p")
            arrays.write(cache, 0, 0, data, tmp_path)
            with pytest.raises(ToolError):
                arrays.write(array, 0, 0, data, tmp_path)
            cache.stop()
            arrays.write(array, 0, 8192, data, tmp_path)
            cache.start()
            arrays.same(arrays.read(cache, 0, 0, len(data) // 512, tmp_path), data)
            arrays.same(arrays.read(cache, 0, 8192, len(data) // 512, tmp_path), data)
            cache.stop()
            flash = cache.flash
            cache.flash = cache.dir / "other"
            cache.options = (*cache.options, "--format")
            cache.start()
            cache.stop()
            cache.flash, cache.options = flash, cache.options[:-1]
            refused(cache, "left out of the cache")
            arrays.write(array, 0, 0, data, tmp_path)  # nor does the start that failed keep anybody out


def test_a_fenced_host_with_a_second_peer_acknowledges_nothing(tmp_path: Path) -> None:
    """It lives, and has enough copies without the peer that was taken over."""
    data, late = arrays.noise(MiB, 23), arrays.noise(MiB, 24)
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as p, Daemon(LENT, "lent2") as q:
        options = ["--peer", f"p={p.url(0)}", "--peer", f"q={q.url(0)}"]
        with HostCache(array, "write_back+2", *options, name="lost") as cache:
            wait_for_peers(cache, "p", "q")
            cache.ask("set", "write_back+1")
            key = own_key(cache)
            arrays.write(cache, 0, 0, data, tmp_path)
            with taker_of(array, p.url(0), key) as taker:
                with pytest.raises(ToolError):
                    arrays.write(cache, 0, 0, late, tmp_path)
                cache.kill()
                cache.proc = None
                arrays.same(arrays.read(taker, 0, 0, len(data) // 512, tmp_path), data)


def test_a_host_whose_flash_has_another_path_goes_on(tmp_path: Path) -> None:
    """Its own reservation is in its way, because a session is known by the path as well."""
    data = arrays.noise(MiB, 26)
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as peer:
        with HostCache(array, "write_back+1", "--peer", f"p={peer.url(0)}") as cache:
            wait_for_peers(cache, "p")
            key = own_key(cache)
            arrays.write(cache, 0, 0, data, tmp_path)
            cache.kill()
            assert isinstance(cache.flash, Path)
            cache.flash = cache.flash.rename(cache.dir / "moved")
            refused(cache, f"--take-over {key}")
            cache.options = (*cache.options, "--take-over", key, "--key", 5)
            cache.start()
            arrays.same(arrays.read(cache, 0, 0, len(data) // 512, tmp_path), data)


def test_a_start_without_a_free_address_reserves_nothing(tmp_path: Path) -> None:
    """It has opened the cache by then."""
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as peer:
        cache = HostCache(array, "write_back+1", "--peer", f"p={peer.url(0)}")
        with socket.create_server(("127.0.0.1", cache.port)):
            refused(cache, "cannot listen")
        arrays.write(array, 0, 0, arrays.noise(MiB, 29), tmp_path)


def test_a_flash_that_was_left_out_is_not_believed_without_its_peer(tmp_path: Path) -> None:
    """The peer is gone for good, and the host is started without it."""
    old, new = arrays.noise(MiB, 27), arrays.noise(MiB, 28)
    with Daemon(SMALL, "below") as array, Daemon(LENT, "lent") as peer:
        with HostCache(array, "write_back+1", "--peer", f"p={peer.url(0)}") as cache:
            wait_for_peers(cache, "p")
            key = own_key(cache)
            arrays.write(cache, 0, 0, old, tmp_path)
            cache.kill()
            cache.proc = None
            with taker_of(array, peer.url(0), key) as taker:
                arrays.write(taker, 0, 0, new, tmp_path)
                taker.stop()
            cache.policy, cache.options = "write_back", ()
            refused(cache, "left out of the cache")
            arrays.same(arrays.read(array, 0, 0, len(new) // 512, tmp_path), new)


def test_the_witness_of_an_earlier_version_counts(tmp_path: Path) -> None:
    """It lay beside the socket, and says that the flash was left out before the upgrade."""
    with Daemon(SMALL, "below") as array, HostCache(array, "write_back") as cache:
        arrays.write(cache, 0, 0, arrays.noise(MiB, 30), tmp_path)
        cache.stop()
        assert isinstance(cache.flash, Path)
        label = cache.flash.read_bytes()[:512]
        number, _, generation = (int.from_bytes(label[at : at + 8], "little") for at in (16, 24, 32))
        naa = label[48:64]
        earlier = cache.socket.with_name(f"{cache.socket.name}.{naa.hex()}.witness")
        earlier.write_text(json.dumps({"NAA": list(naa), "Cache": number, "Generation": generation + 1}))
        for _ in range(2):  # the host's own witness has it afterwards
            refused(cache, f"left out of the cache (generation {generation} of {generation + 1})")
            assert not earlier.exists()


def test_another_caches_flash_is_no_peer(tmp_path: Path) -> None:
    """It was stopped in good order, and is warm; a format is asked for before it is given up."""
    data = arrays.noise(MiB, 31)
    two = Config(volumes=[Volume("a", 0, size=32 * MiB), Volume("b", 1, size=32 * MiB)], cache=16 * MiB)
    with Daemon(two, "below") as array, HostCache(array, "write_back", name="one") as one:
        arrays.write(one, 0, 0, data, tmp_path)
        one.stop()
        assert isinstance(one.flash, Path)
        was = one.flash.read_bytes()
        other = HostCache(array, "write_back+1", "--backend", array.url(1), "--peer", f"p={one.flash}", name="other")
        with other:
            s = other.stats()
            assert s["effective_policy"] == "write_through" and "the flash of cache" in s["state"]["LeftAlone"][0]
            assert "a peer is left alone" in other.log_tail(20)
            arrays.write(other, 0, 0, data, tmp_path)
            other.stop()
            assert one.flash.read_bytes() == was
            one.start()
            arrays.same(arrays.read(one, 0, 0, len(data) // 512, tmp_path), data)
            one.stop()
            other.options = (*other.options, "--format")
            other.start()
            wait_for_peers(other, "p")
            assert "peer p had the flash of cache" in other.log_tail(20)


def test_a_peer_that_was_stopped_costs_its_time_and_no_more(tmp_path: Path) -> None:
    """A stopped process refuses nothing and answers nothing: the cache goes on without it."""
    lent = Config(volumes=[Volume("flash", 0, size=8 * MiB)], cache=16 * MiB)
    data = arrays.noise(MiB, 10)
    with Daemon(SMALL, "below") as array, Daemon(lent, "lent") as peer:
        options = ["--peer", f"p={peer.url(0)}", "--peer-timeout", "2s"]
        with HostCache(array, "write_back+1", *options) as cache:
            # It joins in the background. On a busy machine it may be lost already: two seconds are not long.
            deadline = time.monotonic() + 60
            while (s := cache.stats()["state"])["Peers"] != ["p"] and s["LostPeers"] != ["p"]:
                assert time.monotonic() < deadline, s
                time.sleep(0.05)
            arrays.write(cache, 0, 0, data, tmp_path)
            assert peer.proc is not None
            freeze(peer.proc.pid)
            try:
                began = time.monotonic()
                arrays.write(cache, 0, 4096, data, tmp_path)
                took = time.monotonic() - began
                assert took < 60, f"the write took {took:.0f} s; open-iscsi would have given up"
                s = cache.stats()
                assert s["requested_policy"] == "write_back+1" and s["state"]["LostPeers"] == ["p"]
                # What was dirty before is destaged first; until then the policy in effect is write_back.
                deadline = time.monotonic() + 120
                while s["effective_policy"] != "write_through":
                    assert s["state"]["DirtySectors"] > 0 or s["state"]["Why"], s["state"]
                    assert time.monotonic() < deadline, s["state"]
                    time.sleep(0.1)
                    s = cache.stats()
                arrays.same(arrays.read(cache, 0, 4096, len(data) // 512, tmp_path), data)
                arrays.same(arrays.read(array, 0, 4096, len(data) // 512, tmp_path), data)
            finally:
                peer.proc.send_signal(signal.SIGCONT)


def await_writes(cache: HostCache) -> None:
    """Wait until hosts have written some hundred times more: by then the client has done what it seldom does, too."""

    def written() -> int:
        return cache.stats()["views"]["Effective"]["Write"]["IOs"]

    before, deadline = written(), time.monotonic() + 120
    while written() < before + 500:
        assert time.monotonic() < deadline, "nothing is written"


def test_no_acknowledged_sector_is_lost_when_the_cache_is_killed() -> None:
    seed = int(os.environ.get("ARRAYSIM_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\n{KILLS} kills, seed {seed}; repeat with ARRAYSIM_KILLS={KILLS} ARRAYSIM_SEED={seed}")
    rng = random.Random(seed)
    event: dict[str, Any] = {}
    with Daemon(SMALL, "below") as array, HostCache(array, "write_back", "--block-size", "16KiB") as cache:
        torture = Torture(cache, seed, luns=1)
        try:
            for _ in range(KILLS):
                event = torture.expect("verified")
                time.sleep(rng.uniform(0, 0.5))
                cache.kill()
                cache.start()
            event = torture.expect("verified")
            await_writes(cache)
            torture.proc.send_signal(signal.SIGTERM)
            event = torture.expect("done")
            assert torture.proc.wait(180) == 0, torture.trouble()
            s = cache.stats()
            array.cli("check")
        except AssertionError as e:
            raise AssertionError(f"{e}\nseed {seed}\n{cache.log_tail(30)}") from None
        finally:
            torture.stop()
    print(f"  {event}\n  {s['counters']}")
    assert s["state"]["Damaged"] == 0
    for kind in ("write", "write_fua", "caw", "zero", "pattern", "unmap", "xcopy", "sync", "read"):
        assert event[kind] > 0, f"no {kind} was acknowledged"


def test_the_array_goes_and_comes_back(tmp_path: Path) -> None:
    data = arrays.noise(MiB, 3)
    with Daemon(SMALL, "below") as array, HostCache(array, "write_back") as cache:
        arrays.write(cache, 0, 0, data, tmp_path)
        array.kill()
        arrays.write(cache, 0, 4096, data, tmp_path)  # flash takes it
        if cache.stats()["state"]["DirtySectors"] == 0:
            raise ToolError("the write is clean, and there is no array")
        array.start()
        cache.ask("quiesce")
        arrays.same(arrays.read(array, 0, 4096, len(data) // 512, tmp_path), data)


@pytest.mark.parametrize("named", [False, True], ids=["defaults", "named"])
def test_what_another_host_writes_is_forgotten_and_nothing_else(tmp_path: Path, named: bool) -> None:
    """Two caches, one LUN: each hears from the array's log page what the other has changed, by whatever names."""
    names = [["--initiator", f"iqn.2026-01.test:{n}"] if named else [] for n in ("one", "two")]
    data = arrays.noise(2 * MiB, 4)
    with Daemon(SMALL, "below") as array:
        one = HostCache(array, "write_through", "--watch", "20ms", *names[0], name="one")
        two = HostCache(array, "write_through", "--watch", "20ms", *names[1], name="two")
        with one, two:
            arrays.write(one, 0, 0, data, tmp_path)
            arrays.same(arrays.read(one, 0, 0, len(data) // 512, tmp_path), data)
            assert one.stats()["counters"]["ChangedSectors"] == 0, "its own writes count as another's"
            new = arrays.noise(64 * 512, 5)
            arrays.write(two, 0, 1000, new, tmp_path)
            deadline = time.monotonic() + 60
            while one.stats()["counters"]["ChangedSectors"] == 0:
                assert time.monotonic() < deadline, "it never heard of the change"
                time.sleep(0.01)
            assert one.stats()["counters"]["ChangedSectors"] == 64
            one.ask("stats", "--reset")
            want = data[: 1000 * 512] + new + data[1064 * 512 :]
            arrays.same(arrays.read(one, 0, 0, len(want) // 512, tmp_path), want)
            assert one.stats()["views"]["Datastore"]["Read"]["Bytes"] == 64 * 512
            # What changes while a cache is down is forgotten before it answers; the rest is warm.
            one.kill()
            arrays.write(two, 0, 2000, new, tmp_path)
            one.start()
            want = want[: 2000 * 512] + new + want[2064 * 512 :]
            arrays.same(arrays.read(one, 0, 0, len(want) // 512, tmp_path), want)
            s = one.stats()
            assert s["counters"]["ChangedSectors"] == 64
            assert s["views"]["LocalFlash"]["Read"]["Bytes"] > 0


def test_histograms_statistics_and_the_map(tmp_path: Path) -> None:
    data = arrays.noise(MiB, 6)
    with Daemon(SMALL, "below") as array, HostCache(array, "write_through") as cache:
        arrays.write(cache, 0, 0, data, tmp_path)
        for _ in range(2):
            arrays.read(cache, 0, 0, len(data) // 512, tmp_path)

        def say(*args: Any) -> str:
            return run([binary(), "hostcache", *args]).stdout

        text = say("histo", "--kind", "ioLength", "--reset", "--socket", cache.socket)
        reads = text[text.index("Histogram: IO lengths of Read commands") :].split("\n\n")[0].splitlines()
        count = int(reads[4].removeprefix("count,"))
        assert reads[5] == "Frequency,Histogram Bucket Limit"
        assert sum(int(line.split(",")[0]) for line in reads[6:]) == count
        assert count == cache.stats()["views"]["Effective"]["Read"]["IOs"]
        assert say("histo", "--kind", "ioLength", "--socket", cache.socket) == "", "the reset left something"
        lines = dict(
            line.strip().split(": ") for line in say("stats", "--socket", cache.socket).splitlines() if ": " in line
        )
        assert int(lines["Cache hit rate (as a percentage)"]) > 0
        assert int(lines["Total I/Os"]) >= count
        (entry,) = json.loads(say("map", cache.socket, "--json"))
        assert entry["ios"] == int(lines["Total I/Os"]) and entry["lun"].endswith("/0")
