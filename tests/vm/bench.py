#!/usr/bin/env python3
"""The array behind TCMU against the kernel's own file backstore and tcmu-runner, in one guest, in turn.

    scripts/vm/run.py --limit 2400 --memory 4096 --command 'python3 tests/vm/bench.py'

An emulated processor on a shared machine: only the ratios mean something, which is
why the peers take turns. Every peer keeps its bytes in the guest's memory (tmpfs), has two
LUNs of SIZE, and works on a part that was written before. Prints medians and
ratios, and leaves all single figures in bench.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from doors import LIO_TARGET, KernelDaemon  # noqa: E402
from guest import RESULTS, Disk, Initiator, clear_targets, remove_target, targetcli, tcmu_runner, wait  # noqa: E402
from harness import Config, MiB, Pool, ToolError, run  # noqa: E402

SIZE = 1024 * MiB
WORKING_SET = 256 * MiB
STORE = Path("/dev/shm/bench")
#: Seconds after which arraysim begins to move what it was sent to the back end, and for doing so.
SETTLE = 3

#: fio's rows: name -> arguments, and which figure is taken: IOPS or MiB/s.
ROWS = {
    "4 KiB random read": (["--rw=randread", "--bs=4k", "--iodepth=32"], "iops"),
    "4 KiB random write": (["--rw=randwrite", "--bs=4k", "--iodepth=32"], "iops"),
    "256 KiB read": (["--rw=read", "--bs=256k", "--iodepth=8"], "MiB/s"),
    "256 KiB write": (["--rw=write", "--bs=256k", "--iodepth=8"], "MiB/s"),
}
OFFLOADS = ["256 MiB WRITE SAME", "256 MiB XCOPY"]


def say(text: str) -> None:
    """Report progress."""
    print(text, flush=True)


class Ours:
    """arraysim serve --tcmu."""

    name = "arraysim"
    backstore = "user:array"

    @contextmanager
    def up(self) -> Iterator[list[str]]:
        """Serve; yield the arguments of targetcli's create by LUN."""
        os.environ["ARRAYSIM_SHM"] = str(STORE)
        with KernelDaemon(Config(pools=[Pool("p0")], volumes=[], cache=256 * MiB), "bench"):
            yield [f"name=bench{i} size={SIZE} cfgstring=p0/bench{i}" for i in range(2)]
            clear_targets()


class FileIO:
    """The kernel's file backstore, buffered."""

    name = "LIO fileio"
    backstore = "fileio"

    @contextmanager
    def up(self) -> Iterator[list[str]]:
        """As Ours.up."""
        files = [STORE / f"fileio{i}" for i in range(2)]
        for f in files:
            with f.open("wb") as out:
                out.truncate(SIZE)
        yield [f"name=bench{i} size={SIZE} file_or_dev={f}" for i, f in enumerate(files)]
        clear_targets()
        for f in files:
            f.unlink()


class Runner:
    """tcmu-runner's qcow handler on raw files."""

    name = "tcmu-runner"
    backstore = "user:qcow"

    @contextmanager
    def up(self) -> Iterator[list[str]]:
        """As Ours.up."""
        files = [STORE / f"qcow{i}" for i in range(2)]
        for f in files:
            with f.open("wb") as out:
                out.truncate(SIZE)
        with tcmu_runner():
            yield [f"name=bench{i} size={SIZE} cfgstring={f}" for i, f in enumerate(files)]
        for f in files:
            f.unlink()


PEERS = [Ours(), FileIO(), Runner()]


@contextmanager
def loop(backstore: str) -> Iterator[list[Disk]]:
    """Export by tcm_loop."""
    devices = Path("/sys/bus/scsi/devices")
    before = set(os.listdir(devices))
    naa = "naa.50014050000000b0"
    targetcli(
        f"/loopback create {naa}",
        *[f"/loopback/{naa}/luns create /backstores/{backstore}/bench{i} lun={i}" for i in range(2)],
    )

    def fresh() -> list[Disk]:
        disks = [Disk(n) for n in set(os.listdir(devices)) - before if n.count(":") == 3]
        return sorted(disks, key=lambda d: d.lun) if len(disks) == 2 else []

    yield wait("disks of tcm_loop", fresh)
    remove_target(naa)


@contextmanager
def iscsi(backstore: str, initiator: Initiator) -> Iterator[list[Disk]]:
    """Export by the kernel's iSCSI target and log in."""
    tpg = f"/iscsi/{LIO_TARGET}/tpg1"
    targetcli(
        f"/iscsi create {LIO_TARGET}",
        *[f"{tpg}/luns create /backstores/{backstore}/bench{i} lun={i}" for i in range(2)],
        f"{tpg} set attribute authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1",
    )
    with initiator.session("127.0.0.1:3260", LIO_TARGET, 2) as session:
        yield session.disks()
    remove_target(LIO_TARGET)


def rate(whole: list[str], little: list[str]) -> float:
    """Return the MiB/s of a command that is given WORKING_SET, without what it takes for next to nothing.

    Half of the quickest runs' time is the start of a process in the emulated processor.
    """

    def seconds(argv: list[str]) -> float:
        start = time.monotonic()
        run(argv, timeout=300)
        return time.monotonic() - start

    idle = min(seconds(little) for _ in range(5))
    return WORKING_SET / MiB / max(min(seconds(whole) for _ in range(5)) - idle, 0.001)


def measure(disks: list[Disk], seconds: float, rows: list[str]) -> dict[str, float]:
    """Return the figures of one turn; a copy that the peer gives up is left out."""
    for d in disks:
        wait("ready unit", lambda sg=d.sg: run(["sg_turs", sg], expect=None).returncode == 0)
        Path(d.node, "queue/scheduler").write_text("none")
    sd = disks[0].sd
    common = ["fio", "--name=b", f"--filename={sd}", "--direct=1", "--ioengine=libaio", f"--size={WORKING_SET}"]
    common += ["--thread", "--output-format=json", "--randrepeat=1"]
    run([*common, "--rw=write", "--bs=1m", "--iodepth=4"], timeout=300)
    out: dict[str, float] = {}
    for name, (args, unit) in ROWS.items():
        if rows and name not in rows:
            continue
        text = run([*common, *args, "--time_based", f"--runtime={seconds}", "--ramp_time=1"], timeout=300).stdout
        job = json.loads(text[text.index("{") :])["jobs"][0]
        side = job["read"] if "read" in name else job["write"]
        out[name] = side["iops"] if unit == "iops" else side["bw_bytes"] / MiB
    if rows and not set(rows) & set(OFFLOADS):
        return out
    # What the write rows left in a write cache is no part of an offload's time.
    run(["sg_sync", disks[0].sg], expect=None, timeout=300)
    time.sleep(SETTLE)
    zero = ["blkdiscard", "-z", "-o", str(512 * MiB), sd, "-l"]
    out[OFFLOADS[0]] = rate([*zero, str(WORKING_SET)], [*zero, "4096"])
    # Inside one LUN, segment by segment of 16 MiB, without a list identifier: what all peers can.
    argv = ["sg_xcopy", f"if={disks[0].sg}", f"of={disks[0].sg}", "bs=512", f"seek={512 * MiB // 512}"]
    argv += ["bpt=32768", "id_usage=disable"]
    try:
        out[OFFLOADS[1]] = rate([*argv, f"count={WORKING_SET // 512}"], [*argv, "count=8"])
    except ToolError as e:  # tcmu-runner has been seen to give up on a busy host
        say(f"  no XCOPY: {e}")
    return out


def main() -> None:
    """Run all turns and print the table."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=4, help="of each of fio's rows")
    p.add_argument("--peers", default="arraysim,LIO fileio,tcmu-runner")
    p.add_argument("--rows", default="", help="these rows only, separated by commas")
    p.add_argument("--doors", default="iscsi,loop")
    opt = p.parse_args()
    STORE.mkdir(exist_ok=True)
    for module in ("target_core_user", "target_core_file", "iscsi_target_mod", "tcm_loop"):
        run(["modprobe", module])
    rows = [r for r in opt.rows.split(",") if r]
    figures: dict[str, dict[str, dict[str, list[float]]]] = {}
    with Initiator() as initiator:
        for turn in range(opt.rounds):
            for peer in (p for p in PEERS if p.name in opt.peers.split(",")):
                with ExitStack() as stack:
                    luns = stack.enter_context(peer.up())
                    targetcli(*[f"/backstores/{peer.backstore} create {args}" for args in luns])
                    for door in opt.doors.split(","):
                        opened = loop(peer.backstore) if door == "loop" else iscsi(peer.backstore, initiator)
                        with opened as disks:
                            got = measure(disks, opt.seconds, rows)
                        say(f"{turn} {peer.name}, {door}: " + ", ".join(f"{k} {v:.0f}" for k, v in got.items()))
                        for name, v in got.items():
                            figures.setdefault(door, {}).setdefault(name, {}).setdefault(peer.name, []).append(v)
    (RESULTS / "bench.json").write_text(json.dumps(figures, indent=1))
    show(figures)


def show(figures: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    """Print medians, and the ratios of ours to the others'."""
    print(f"\n{'door':6} {'row':20} {'arraysim':>9} {'fileio':>9} {'runner':>9}   {'/fileio':>8} {'/runner':>8}")
    for door, by_row in figures.items():
        for row, by_peer in by_row.items():
            ours, fileio, runner = (statistics.median(by_peer.get(p.name, [float("nan")])) for p in PEERS)
            cells = f"{ours:9.0f} {fileio:9.0f} {runner:9.0f}   {ours / fileio:8.2f} {ours / runner:8.2f}"
            print(f"{door:6} {row:20} {cells}")
    print("4 KiB rows in IOPS at depth 32, others in MiB/s; medians.")


if __name__ == "__main__":
    main()
