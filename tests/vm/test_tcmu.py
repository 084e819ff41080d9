"""targetcli and the life of a backstore of `user:array`: made, changed, saved, removed, served again after a crash."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrays import Delta
from doors import POOLS, KernelDaemon, backstore, looped
from guest import RESULTS, clear_targets, mounted, targetcli, wait
from harness import Config, Daemon, Mdisk, MiB, Pool, ToolError, Volume, binary, run
from load import Load, content, fill, fsck, mkfs, on_disk

NAA = "naa.5001405000000020"
STORES = "/backstores/user:array"

#: Kills of the daemon under a mounted file system; a longer run sets more.
KILLS = int(os.environ.get("ARRAYSIM_KILLS", "3"))
SEED = int(os.environ.get("ARRAYSIM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


@pytest.fixture
def array(lio: None) -> Iterator[KernelDaemon]:
    """An array with the kernel's door open and no backstore; what a test leaves is removed."""
    with KernelDaemon(name="tcmu") as d:
        yield d
        clear_targets()


def create(volume: Volume, *options: str, name: str | None = None) -> str:
    """Make a backstore and return what targetcli says."""
    return targetcli(backstore(volume, *options, name=name)).text


def patient(name: str) -> str:
    """Return the command by which a backstore's commands wait for a daemon that is dead for longer than 30 s.

    A start may take that long when the machine is busy with other things.
    """
    return f"{STORES}/{name} set attribute cmd_time_out=300"


def attribute(name: str, attr: str) -> str:
    """Read an attribute of a backstore from configfs."""
    (found,) = Path("/sys/kernel/config/target/core").glob(f"user_*/{name}/attrib/{attr}")
    return found.read_text().strip()


def backstores() -> list[str]:
    """Return the names of the kernel's TCMU devices."""
    return sorted(p.parent.name for p in Path("/sys/kernel/config/target/core").glob("user_*/*/info"))


def volumes(array: Daemon) -> dict[str, str]:
    """Return the array's volumes: name -> line of the list."""
    lines = array.cli("volume", "list").stdout.splitlines()[1:]
    return {line.split()[0]: line for line in lines if line.strip()}


# targetcli


def test_create_makes_the_volume_and_delete_keeps_it(array: KernelDaemon) -> None:
    v = Volume("made", None, size=64 * MiB)
    assert "Created" in create(v)
    assert "made" in volumes(array) and backstores() == ["made"]
    assert re.search(r"made .*p0/made.*64", targetcli(f"ls {STORES}").text)
    targetcli(f"{STORES} delete made")
    assert "made" in volumes(array) and backstores() == []
    create(v, name="again")
    assert backstores() == ["again"]


BAD = {
    "no volume": ("p0", "POOL/VOLUME"),
    "no pool": ("nopool/v", "nopool"),
    "bad option": ("p0/v/colour=red", "colour"),
    "bad value": ("p0/v/provisioning=fat", "thin"),
    "must exist": ("p0/absent/create=no", "absent"),
}


def test_bad_strings_are_explained(array: KernelDaemon) -> None:
    create = [f"{STORES} create name=bad size=64M cfgstring={config}" for config, _ in BAD.values()]
    r = targetcli(*create, expect=None)
    assert [said for _, said in BAD.values() if said not in r.text] == [] and "Traceback" not in r.text, r
    assert backstores() == []


def test_volume_is_served_once(array: KernelDaemon) -> None:
    v = Volume("once", None, size=64 * MiB)
    create(v)
    r = targetcli(backstore(v, name="twice"), expect=None)
    assert "once" in r.text and backstores() == ["once"], r


@pytest.mark.parametrize("size", [512, 4096])
def test_block_size(array: KernelDaemon, size: int) -> None:
    with looped(NAA, ["blocks"], backstore(Volume("blocks", None, size=64 * MiB, block_size=size))) as (disk,):
        assert disk.queue("logical_block_size") == str(size) and disk.size == 64 * MiB


def test_volume_keeps_its_names(array: KernelDaemon) -> None:
    """Pages 80h and 83h are the volume's, whatever backstore it is behind; two volumes have different ones."""

    def names(volume: str, store: str) -> list[str]:
        with looped(NAA, [store], backstore(Volume(volume, None, size=64 * MiB), name=store)) as (disk,):
            pages = [run(["sg_vpd", f"--page={page}", "--raw", disk.sg]).raw.hex() for page in ("0x80", "0x83")]
        clear_targets()
        return pages

    first = names("named", "one")
    assert names("named", "two") == first
    assert not set(names("other", "one")) & set(first)


@pytest.mark.kernel_says("[Cc]apacity")
def test_resize(array: KernelDaemon) -> None:
    """Written to dev_size, the size reaches the volume, and the initiator after a rescan."""
    with looped(NAA, ["grown"], backstore(Volume("grown", None, size=64 * MiB))) as (disk,):
        targetcli(f"{STORES}/grown set attribute dev_size={128 * MiB}")
        (disk.sysfs / "rescan").write_text("1")
        wait("new size", lambda: disk.size == 128 * MiB)
        assert "128" in volumes(array)["grown"]
        fill(disk.sd, 8 * MiB)


def test_write_cache_attribute(array: KernelDaemon) -> None:
    """At 0 initiators see no write cache, after a restart of the daemon too."""
    with looped(NAA, ["cached"], backstore(Volume("cached", None, size=64 * MiB)), patient("cached")) as (disk,):

        def seen() -> str:
            (disk.sysfs / "rescan").write_text("1")
            return f"{attribute('cached', 'emulate_write_cache')} {disk.queue('write_cache')}"

        assert seen() == "1 write back"
        targetcli(f"{STORES}/cached set attribute emulate_write_cache=0")
        assert seen() == "0 write through"
        want = fill(disk.sd, 8 * MiB)
        array.kill()
        array.start()
        assert seen() == "0 write through" and content(disk.sd, 8 * MiB) == want
        targetcli(f"{STORES}/cached set attribute emulate_write_cache=1")
        assert seen() == "1 write back"


def test_save_clear_restore(array: KernelDaemon) -> None:
    """The machine's configuration survives, and the data with it."""
    file = RESULTS / "saveconfig.json"
    stores = [Volume("saved1", None, size=64 * MiB), Volume("saved2", None, size=64 * MiB, block_size=4096)]
    luns = [f"/loopback/{NAA}/luns create {STORES}/{v.name}" for v in stores]
    targetcli(
        *map(backstore, stores), f"/loopback create {NAA}", *luns, f"saveconfig {file}", "clearconfig confirm=True"
    )
    assert backstores() == []
    targetcli(f"restoreconfig {file}")
    assert backstores() == ["saved1", "saved2"]
    assert attribute("saved2", "hw_block_size") == "4096"


def test_dozens_at_once(array: KernelDaemon) -> None:
    """Made in parallel, past rtslib, as fast as the kernel takes them; removed again."""
    make = r"""
set -e
d=/sys/kernel/config/target/core/user_$((100 + $1))
mkdir -p $d/many$1
echo "dev_config=array/p0/many$1,dev_size=16777216" > $d/many$1/control
echo 1 > $d/many$1/enable
"""
    names = [f"many{i}" for i in range(40)]
    children = [subprocess.Popen(["bash", "-c", make, "-", str(i)]) for i in range(len(names))]
    assert [c.wait(120) for c in children] == [0] * len(names)
    assert backstores() == sorted(names) and set(names) <= set(volumes(array))
    for i in range(len(names)):
        folder = Path(f"/sys/kernel/config/target/core/user_{100 + i}")
        (folder / f"many{i}").rmdir()
        folder.rmdir()
    assert backstores() == []


# One server


def test_second_server_is_refused(array: KernelDaemon) -> None:
    with pytest.raises(ToolError, match="another process serves TCMU"):
        KernelDaemon(Config(pools=POOLS, volumes=[]), "second").start()


def test_does_not_start_beside_tcmu_runner(lio: None) -> None:
    runner = subprocess.Popen(["tcmu-runner"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        bus = ["dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]
        bus += ["org.freedesktop.DBus.GetNameOwner", "string:org.kernel.TCMUService1"]
        wait("tcmu-runner's name", lambda: run(bus, expect=None).returncode == 0)
        with pytest.raises(ToolError, match="systemctl disable --now tcmu-runner"):
            KernelDaemon(Config(pools=POOLS, volumes=[]), "beside").start()
    finally:
        runner.terminate()
        runner.wait(30)


def test_no_tcmu_no_door(lio: None) -> None:
    """Without --tcmu the daemon leaves the kernel alone."""
    with Daemon(Config(), "plain"):
        bus = ["dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]
        bus += ["org.freedesktop.DBus.NameHasOwner", "string:org.kernel.TCMUService1"]
        assert "false" in run(bus).stdout


# Crashes and ends


def test_lun_keeps_its_data_over_an_orderly_end(array: KernelDaemon) -> None:
    with looped(NAA, ["kept"], backstore(Volume("kept", None, size=64 * MiB)), patient("kept")) as (disk,):
        want = fill(disk.sd, 8 * MiB)
        array.signal(signal.SIGTERM, 60)
        array.start()
        assert content(disk.sd, 8 * MiB) == want


def test_removal_without_a_server_does_not_hang(array: KernelDaemon) -> None:
    create(Volume("orphan", None, size=64 * MiB))
    array.kill()
    (folder,) = Path("/sys/kernel/config/target/core").glob("user_*/orphan")
    subprocess.run(["rmdir", folder], timeout=60, check=True)
    array.start()
    assert backstores() == [] and "orphan" in volumes(array)


@pytest.mark.parametrize("kind", ["xfs", pytest.param("ext4", marks=pytest.mark.slow)])
def test_kills_under_a_file_system(array: KernelDaemon, kind: str, folder: Path) -> None:
    """kill -9 at random moments while fio writes and checks; no error reaches it, and fsck finds nothing."""
    rng = random.Random(SEED)
    print(f"{KILLS} kills, seed {SEED}: repeat with --env ARRAYSIM_SEED={SEED}", flush=True)
    with looped(NAA, ["busy"], backstore(Volume("busy", None, size=512 * MiB)), patient("busy")) as (disk,):
        mkfs(kind, disk.sd)
        for i in range(KILLS):
            with mounted(disk.sd, folder):
                for old in folder.glob("round*"):  # there is room for some only
                    old.unlink()
                args = [f"--directory={folder}", "--ioengine=libaio", "--direct=1", "--iodepth=16", "--rw=randwrite"]
                args += ["--bsrange=4k-64k", "--size=24m", "--fsync=64", "--verify=crc32c", "--verify_fatal=1"]
                load = Load(f"round{i}", *args)
                time.sleep(rng.uniform(0.3, 2))
                array.kill()
                time.sleep(rng.uniform(0, 2))
                array.start()
                load.finish()
            fsck(kind, disk.sd)
            print(f"{i + 1} of {KILLS} kills", flush=True)


def test_kill_in_the_middle_of_copies(array: KernelDaemon) -> None:
    """A copy that a crash cuts off is either tried again by its initiator or fails; what was there before stays."""
    stores = [c for name in ("from", "to") for c in (backstore(Volume(name, None, size=256 * MiB)), patient(name))]
    with looped(NAA, ["from", "to"], *stores) as (source, target):
        want = fill(source.sd, 32 * MiB)
        argv = ["sg_xcopy", f"if={source.sg}", f"of={target.sg}", "bs=512", f"count={32 * MiB // 512}"]
        copy = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.1)
        array.kill()
        array.start()
        copy.wait(120)
        assert content(source.sd, 32 * MiB) == want
        run(argv, timeout=120)
        assert content(target.sd, 32 * MiB) == want


def test_copies_over_io_groups(lio: None) -> None:
    """The copy domain, and no more, reaches over I/O groups: sg_xcopy copies, and the other group's cache is told."""
    config = Config(pools=[Pool("p0", io_group=0), Pool("p1", io_group=1)], volumes=[], io_groups=2)
    names = {"from": ("p0", ["domain=both"]), "to": ("p1", ["domain=both"]), "alone": ("p1", [])}
    with KernelDaemon(config, "groups") as array:
        stores = [backstore(Volume(n, None, pool=p, size=64 * MiB), *opts) for n, (p, opts) in names.items()]
        with looped(NAA, list(names), *stores) as (source, target, alone):
            want = fill(source.sd, 16 * MiB)
            argv = ["sg_xcopy", f"if={source.sg}", "bs=512", f"count={16 * MiB // 512}"]
            d = Delta(array)
            run([*argv, f"of={target.sg}"], timeout=120)
            assert content(target.sd, 16 * MiB) == want
            assert d.sum("host_described_bytes_total", volume="to", op="xcopy_dst") == 16 * MiB
            assert d.sum("undercover_write_bytes_total", volume="to") == 16 * MiB
            r = run([*argv, f"of={alone.sg}"], timeout=120, expect=None)
            assert r.returncode != 0 and content(alone.sd, 16 * MiB) == bytes(16 * MiB), r
        clear_targets()


@pytest.mark.kernel_says(r"ABORT|[Aa]bort|TMR|reset|LUN_RESET")
def test_lun_reset_under_load_and_a_kill(array: KernelDaemon) -> None:
    with looped(NAA, ["both"], backstore(Volume("both", None, size=256 * MiB)), patient("both")) as (disk,):
        load = Load("both", *on_disk(disk.sd, "--rw=randwrite", "--bs=16k", "--size=48m", "--verify=crc32c"))
        time.sleep(0.5)
        run(["sg_reset", "--device", disk.sg], timeout=60)
        array.kill()
        array.start()
        run(["sg_reset", "--device", disk.sg], timeout=60)
        load.finish()


@pytest.mark.kernel_says(r"ABORT|[Aa]bort|TMR|reset|LUN_RESET")
def test_lun_reset_of_commands_in_progress(lio: None) -> None:
    """tcm_loop reports GOOD for what a LUN RESET gave up, so the array carries it out: fio reads what it wrote."""
    slow = Pool("p0", mdisks=[Mdisk("m0", iops=100)])  # a reset meets commands that wait for it
    with KernelDaemon(Config(pools=[slow], volumes=[], cache=4 * MiB), "resets"):
        with looped(NAA, ["slow"], backstore(Volume("slow", None, size=64 * MiB)), patient("slow")) as (disk,):
            args = ["--rw=randwrite", "--bs=64k", "--size=16m", "--verify=crc32c", "--verify_fatal=1"]
            load, resets = Load("slow", *on_disk(disk.sd, *args, depth=8)), 0
            while load.proc.poll() is None:
                run(["sg_reset", "--device", disk.sg], timeout=60)
                resets += 1
                time.sleep(0.1)
            load.finish()
        clear_targets()
    assert resets > 0


def test_binary_is_the_one_under_test() -> None:
    assert "--tcmu" in run([binary(), "serve", "--help"]).text
