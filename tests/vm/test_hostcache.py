"""The caching layer as a local disk: an array's LUN, hostcache in front of it, tcm_loop on top.

The array is another machine in reality; here it is reached by its portal. The kernel's door belongs
to the cache. The file system's copies and zeroes go beneath the cache: the array carries them out.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from arrays import NEARLY_NOTHING, Delta
from caches import LocalCache, held
from doors import looped
from guest import Disk, clear_targets, mounted
from harness import Config, Daemon, MiB, Volume, run
from load import Load, content, fill, fsck, on_disk, sha

#: They take minutes of an emulated machine: `make vm-test-all` has them.
pytestmark = pytest.mark.slow

NAA = "naa.5001405000000050"
SIZE = 1024 * MiB
HALF = SIZE // 2
KILLS = int(os.environ.get("ARRAYSIM_KILLS", "3"))
SEED = int(os.environ.get("ARRAYSIM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


CREATE = f"/backstores/user:hostcache create name=cached size={SIZE} cfgstring=0"
#: A start of the cache may take longer than the kernel's 30 s.
PATIENT = "/backstores/user:hostcache/cached set attribute cmd_time_out=300"


@pytest.fixture
def below(lio: None) -> Iterator[Daemon]:
    """Return an array with one LUN."""
    with Daemon(Config(volumes=[Volume("v", 0, size=SIZE)]), "below") as d:
        yield d


@contextmanager
def local(array: Daemon, policy: str, flash: int) -> Iterator[LocalCache]:
    """Run a cache; its backstores are removed while it can answer the kernel."""
    with LocalCache(array, policy, flash) as cache:
        try:
            yield cache
        finally:
            clear_targets()


def copy(disk: Disk, start: int, to: int, size: int) -> None:
    """EXTENDED COPY inside a disk, all in bytes."""
    blocks = [f"skip={start // 512}", f"seek={to // 512}", f"count={size // 512}"]
    run(["sg_xcopy", f"if={disk.sg}", f"of={disk.sg}", "bs=512", "bpt=16384", *blocks], timeout=300)


def put(disk: Disk, data: bytes, offset: int) -> None:
    """Write to a disk, past the page cache."""
    part = Path("/dev/shm/part")
    part.write_bytes(data)
    run(["dd", f"if={part}", f"of={disk.sd}", "bs=1M", f"seek={offset // MiB}", "oflag=direct", "status=none"])
    part.unlink()


@pytest.mark.kernel_says(r"(Starting|Ending) recovery")
def test_xfs_on_a_cached_disk_with_offloads_beneath(below: Daemon, folder: Path) -> None:
    """What the array copies and zeroes is what the host last wrote, though that was on flash only."""
    with (
        local(below, "write_back", 96 * MiB) as cache,
        looped(NAA, ["cached"], CREATE, PATIENT, subtype="hostcache") as (disk,),
    ):
        assert cache.stats()["effective_policy"] == "write_back"
        # mkfs writes to the first half only; the clone goes to the second.
        run(["mkfs.xfs", "-q", "-f", "-d", f"size={HALF}", disk.sd], timeout=240)
        with mounted(disk.sd, folder):
            for i in range(4):
                (folder / f"file{i}").write_bytes(random.Random(i).randbytes(6 * MiB))
            files = [folder / f"file{i}" for i in range(4)]
            want = sha(*files)
            assert cache.stats()["views"]["LocalFlash"]["Write"]["Bytes"] > 0
            run(["xfs_freeze", "-f", folder])
            try:
                d = Delta(below)
                copy(disk, 0, HALF, HALF)
                d.stop()
            finally:
                run(["xfs_freeze", "-u", folder])
            assert d.sum("host_described_bytes_total", volume="v", op="xcopy_dst") >= HALF
            print(f"destaged for the copy: {cache.stats()['counters']['OffloadFlushSectors'] // 2} KiB")
            (folder / "file0").write_bytes(random.Random(9).randbytes(6 * MiB))
            assert sha(files[0]) != want[:1]
        fsck("xfs", disk.sd)
        # The clone, copied back, is the file system at the moment of the freeze.
        copy(disk, HALF, 0, HALF)
        with mounted(disk.sd, folder):
            assert sha(*files) == want
        fsck("xfs", disk.sd)
        # WRITE SAME of zeroes over the clone, which is warm in the cache and partly dirty.
        put(disk, random.Random(8).randbytes(8 * MiB), HALF)
        d = Delta(below)
        argv = ["sg_write_same", "--16", f"--lba={HALF // 512}", f"--num={16 * MiB // 512}"]
        run([*argv, "--in=/dev/zero", "--xferlen=512", disk.sg])
        d.stop()
        assert d.sum("host_described_bytes_total", volume="v", op="write_same") >= 16 * MiB
        assert not any(content(disk.sd, 16 * MiB, HALF))
        print(f"superseded by the array's zeroes: {cache.stats()['counters']['SupersededSectors'] // 2} KiB")
        with mounted(disk.sd, folder):
            assert sha(*files) == want


def test_kills_under_xfs_on_a_cached_disk(below: Daemon, folder: Path) -> None:
    """kill -9 of the cache while fio writes and checks through xfs and offloads run beneath it; fsck finds nothing."""
    rng = random.Random(SEED)
    print(f"seed {SEED}: repeat with --env ARRAYSIM_SEED={SEED}")
    with (
        local(below, "write_back", 64 * MiB) as cache,
        looped(NAA, ["cached"], CREATE, PATIENT, subtype="hostcache") as (disk,),
    ):
        run(["mkfs.xfs", "-q", "-f", "-d", f"size={HALF}", disk.sd], timeout=240)
        with mounted(disk.sd, folder):
            (folder / "kept").write_bytes(random.Random(5).randbytes(8 * MiB))
            want = sha(folder / "kept")
        # Beyond the file system: what is copied, and where to.
        put(disk, random.Random(32).randbytes(32 * MiB), HALF)
        source = content(disk.sd, 32 * MiB, HALF)
        argv = ["sg_xcopy", f"if={disk.sg}", f"of={disk.sg}", "bs=512", f"skip={HALF // 512}"]
        argv += [f"seek={(HALF + 64 * MiB) // 512}", f"count={32 * MiB // 512}", "bpt=16384"]
        dirty = 0
        for i in range(KILLS):
            with mounted(disk.sd, folder):
                args = [f"--directory={folder}", "--ioengine=libaio", "--direct=1", "--iodepth=16", "--rw=randwrite"]
                args += ["--bsrange=4k-64k", "--size=24m", "--fsync=64", "--verify=crc32c", "--verify_fatal=1"]
                load = Load(f"round{i}", *args)
                time.sleep(rng.uniform(0.3, 2))
                offload = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(rng.uniform(0, 0.1))
                cache.kill()
                time.sleep(rng.uniform(0, 2))
                cache.start()
                dirty += cache.stats()["recovery"]["DirtySectors"]
                load.finish()
                offload.wait(300)
                assert sha(folder / "kept") == want
            fsck("xfs", disk.sd)
            assert content(disk.sd, 32 * MiB, HALF) == source
            run(argv, timeout=300)
            assert content(disk.sd, 32 * MiB, HALF + 64 * MiB) == source
        assert cache.stats()["state"]["Damaged"] == 0
        print(f"{KILLS} kills, {dirty} dirty sectors found on flash")
        cache.ask("quiesce")
        assert cache.stats()["state"]["DirtySectors"] == 0


def begun(disk: Disk, argv: list[str]) -> subprocess.Popen[str]:
    """Start an offload and wait until the cache has it."""
    busy = disk.sysfs / "device_busy"
    want = int(busy.read_text()) + 1
    proc = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    same = 0
    while same < 20:  # what the tool asks before the offload is answered at once
        same = same + 1 if int(busy.read_text()) == want else 0
        assert proc.poll() is None, f"it ended: {proc.communicate()[0]}"
        time.sleep(0.02)
    return proc


def test_offloads_over_dirty_data(below: Daemon) -> None:
    """XCOPY from and over, and WRITE SAME over, what was on flash alone when they came."""
    first, source, target, zeroed = 0, 64 * MiB, 128 * MiB, 192 * MiB
    size = 8 * MiB

    def new(kind: int, size: int = size) -> bytes:
        return random.Random(kind).randbytes(size)

    with (
        local(below, "write_back", 160 * MiB) as cache,
        looped(NAA, ["cached"], CREATE, PATIENT, subtype="hostcache") as (disk,),
    ):
        # Old data, which is below and still warm: nobody may see it again.
        for at in (source, target, zeroed):
            put(disk, new(at), at)
        cache.ask("resume", cache.ask("quiesce")["token"])
        assert cache.stats()["state"]["DirtySectors"] == 0
        before = cache.stats()["counters"]
        with held(below):
            # The destager begins with the first; its 40 writes below of up to 256 KiB do not come back.
            put(disk, new(0, 12 * MiB), first)
            for at in (source, target, zeroed):
                put(disk, new(at + 1), at)
            assert cache.stats()["state"]["DirtySectors"] * 512 == 12 * MiB + 3 * size
            # One MiB at the end of each stays what it is.
            moved = size - MiB
            argv = ["sg_xcopy", f"if={disk.sg}", f"of={disk.sg}", "bs=512", "bpt=16384"]
            argv += [f"skip={source // 512}", f"seek={target // 512}", f"count={moved // 512}"]
            offloads = [begun(disk, argv)]
            argv = ["sg_write_same", "--16", f"--lba={zeroed // 512}", f"--num={moved // 512}", "--timeout=300"]
            offloads.append(begun(disk, [*argv, "--in=/dev/zero", "--xferlen=512", disk.sg]))
            assert cache.stats()["state"]["DirtySectors"] * 512 == 12 * MiB + 3 * size
        for proc in offloads:
            said = proc.communicate(timeout=300)[0]
            assert proc.returncode == 0, said
        after = cache.stats()["counters"]
        flushed, void = ((after[k] - before[k]) * 512 for k in ("OffloadFlushSectors", "SupersededSectors"))
        print(f"of dirty data, {flushed // 1024} KiB destaged for the copy, {void // 1024} KiB void by the offloads")
        assert flushed >= moved
        # The zeroes need nothing from the cache. The copy waits until its source is below, and the destager goes on
        # meanwhile, so that what it writes over may be there, too, by then.
        assert moved <= void <= 2 * moved
        for at, want in (
            (first, new(0, 12 * MiB)),
            (source, new(source + 1)),
            (target, new(source + 1)[:moved] + new(target + 1)[moved:]),
            (zeroed, bytes(moved) + new(zeroed + 1)[moved:]),
        ):
            assert content(disk.sd, len(want), at) == want, f"through the cache, at {at // MiB} MiB"
        # And what the array has when all is destaged.
        cache.ask("set", "off")
        assert content(disk.sd, size, target) == new(source + 1)[:moved] + new(target + 1)[moved:]
        assert content(disk.sd, size, zeroed) == bytes(moved) + new(zeroed + 1)[moved:]


def median_read(device: str, size: int) -> float:
    """Read 4 KiB of each 64 KiB of a range, one at a time; return the median latency in microseconds.

    Behind an array its disks' controllers have a cache, too, by 64 KiB: more of these would come from there.
    """
    argv = on_disk(device, "--rw=read:60k", "--bs=4k", f"--size={size}", f"--io_size={size // 16}", depth=1)
    argv.append("--output-format=json")
    out = Load("read", *argv).finish()
    job = json.loads(out[out.index("{") :])["jobs"][0]
    return job["read"]["clat_ns"]["percentile"]["50.000000"] / 1000


def test_reads_from_flash_spare_the_arrays_latency(lio: None) -> None:
    """The array injects its profile's latency; second reads are local. The gain is printed, the counters are held."""
    config = Config(volumes=[Volume("v", 0, size=SIZE)])
    size = 32 * MiB
    array = Daemon(config, "slow")
    plain = array.command
    array.command = lambda: [*plain(), "--profile", "svc"]  # type: ignore[method-assign]
    with array, local(array, "off", 64 * MiB) as cache:
        with looped(NAA, ["cached"], CREATE, PATIENT, subtype="hostcache") as (disk,):
            fill(disk.sd, size)
            # What was just written is in the array's memory. Its end destages that, and its start has none of it:
            # each read comes from a disk behind the array.
            array.stop()
            array.start()
            uncached = median_read(disk.sd, size)
            cache.ask("set", "write_through")
            content(disk.sd, size)
            cache.stats("--reset")
            d = Delta(array)
            warm = median_read(disk.sd, size)
            views = cache.stats()["views"]
            asked = d.wire("v", "read")
    print(f"median read: {uncached:.0f} us from the array, {warm:.0f} us effective: {uncached / warm:.2f} times")
    print(f"{views}")
    assert views["LocalFlash"]["Read"]["Bytes"] == views["Effective"]["Read"]["Bytes"] == size // 16
    # The cache asks the array every second what others have changed; that is all.
    assert asked <= NEARLY_NOTHING, "reads of warm data reached the array"
    # svc's disks take 6.5 ms, of which at least half is injected into every read: no luck of the clock.
    assert uncached > 3250
    assert warm < uncached
