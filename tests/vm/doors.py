"""The array behind each of its doors, as disks of the guest's kernel.

"portal" is the embedded iSCSI portal, "tcmu-iscsi" and "tcmu-loop" are the
kernel's own targets with backstores of `user:array`, made by targetcli.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest import INITIATOR, RESULTS, Disk, Initiator, clear_targets, remove_target, targetcli, wait
from harness import TARGET, Config, Daemon, MiB, Pool, Volume, run

#: Volumes of every door, by LUN. "other" lies in another pool, in the copy domain of the first.
VOLUMES = [
    Volume("thin", 0, size=512 * MiB),
    Volume("peer", 1, size=512 * MiB),
    Volume("other", 2, pool="p1", size=512 * MiB),
    Volume("native", 3, block_size=4096, size=512 * MiB),
    Volume("protected", 4, write_protect=True),
    Volume("thick", 5, thin=False, size=64 * MiB),
]

#: Only the portal has it: a backstore of the kernel is no removable medium.
REMOVABLE = Volume("removable", 6, removable=True)

POOLS = [Pool("p0"), Pool("p1")]

LIO_TARGET = "iqn.2026-01.org.example:kernel"


class KernelDaemon(Daemon):
    """arraysim serve --tcmu, in the place of tcmu-runner."""

    def __init__(self, config: Config | None = None, name: str = "kernel") -> None:
        super().__init__(config or Config(pools=POOLS, volumes=[]), name)

    def spawn(self, argv: Sequence[Any]) -> None:
        """Start the process with the kernel's door open."""
        super().spawn([*argv, "--tcmu"])

    def cleanup(self) -> None:
        """Keep the log, remove the rest."""
        with (RESULTS / f"arraysim-{self.name}.log").open("a") as f:
            f.write(self.log_tail(100000))
        super().cleanup()


@dataclass
class Door:
    """One door: its daemon and its disks by volume."""

    name: str
    daemon: Daemon
    disks: dict[str, Disk]

    def __getitem__(self, volume: str) -> Disk:
        return self.disks[volume]


def settle(disks: Sequence[Disk]) -> None:
    """Let every disk report the unit attentions that it has."""
    for disk in disks:
        disk.be_patient()
        wait("ready unit", lambda sg=disk.sg: run(["sg_turs", sg], expect=None).returncode == 0)


def backstore(v: Volume, *options: str, name: str | None = None) -> str:
    """Return the targetcli command that makes a volume and its backstore."""
    config = "/".join([f"{v.pool}/{v.name}", *options])
    if not v.thin:
        config += "/provisioning=thick"
    if v.write_protect:
        config += "/write_protect=yes"
    control = f" control=hw_block_size={v.block_size}" if v.block_size != 512 else ""
    return f"/backstores/user:array create name={name or v.name} size={v.size} cfgstring={config}{control}"


def patient_acl(tpg: str) -> list[str]:
    """Return the commands that make LIO wait for a write's data for as long as it can.

    A guest that stands still for its default, 3 s, would lose the session.
    """
    return [f"{tpg}/acls create {INITIATOR}", f"{tpg}/acls/{INITIATOR} set attribute dataout_timeout=60"]


@contextmanager
def exported(names: Sequence[str]) -> Iterator[None]:
    """Export backstores by the kernel's iSCSI target, the first as LUN 0."""
    tpg = f"/iscsi/{LIO_TARGET}/tpg1"
    targetcli(
        f"/iscsi create {LIO_TARGET}",
        *[f"{tpg}/luns create /backstores/user:array/{n} lun={i}" for i, n in enumerate(names)],
        f"{tpg} set attribute authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1",
        *patient_acl(tpg),
    )
    try:
        yield
    finally:
        remove_target(LIO_TARGET)


@contextmanager
def looped(naa: str, names: Sequence[str], *first: str, subtype: str = "array") -> Iterator[list[Disk]]:
    """Export backstores by tcm_loop to the guest itself; yield the disks in this order.

    first are commands for the same session of targetcli, such as what makes the backstores; subtype is their kind.
    """
    devices = Path("/sys/bus/scsi/devices")
    before = set(os.listdir(devices))
    luns = [f"/loopback/{naa}/luns create /backstores/user:{subtype}/{n} lun={i}" for i, n in enumerate(names)]
    said = targetcli(*first, f"/loopback create {naa}", *luns)
    try:

        def fresh() -> list[Disk]:
            new = [Disk(n) for n in set(os.listdir(devices)) - before if re.fullmatch(r"\d+:\d+:\d+:\d+", n)]
            return sorted(new, key=lambda d: d.lun) if len(new) == len(names) else []

        disks = wait(f"{len(names)} disks of tcm_loop", fresh, said=said)
        settle(disks)
        yield disks
    finally:
        remove_target(naa)


@contextmanager
def portal(initiator: Initiator) -> Iterator[Door]:
    """The embedded portal."""
    config = Config(pools=POOLS, volumes=[*VOLUMES, REMOVABLE])
    with Daemon(config, "portal") as d:
        try:
            with initiator.session(f"127.0.0.1:{d.port}", TARGET, len(config.volumes)) as s:
                disks = s.disks()
                settle(disks)
                yield Door("portal", d, {v.name: disks[v.lun or 0] for v in config.volumes})
        finally:
            (RESULTS / "arraysim-portal.log").write_text(d.log_tail(10000))


@contextmanager
def kernel_array() -> Iterator[KernelDaemon]:
    """The array with a backstore for each of VOLUMES, named as the volume."""
    with KernelDaemon() as d:
        options = {"other": ["domain=p0"]}
        targetcli(*[backstore(v, *options.get(v.name, [])) for v in VOLUMES])
        yield d
        clear_targets()


@contextmanager
def kernel_iscsi(d: Daemon, initiator: Initiator) -> Iterator[Door]:
    """The kernel's iSCSI target over those backstores."""
    with exported([v.name for v in VOLUMES]):
        with initiator.session("127.0.0.1:3260", LIO_TARGET, len(VOLUMES)) as s:
            disks = s.disks()
            settle(disks)
            yield Door("tcmu-iscsi", d, {v.name: disks[v.lun or 0] for v in VOLUMES})


@contextmanager
def kernel_loop(d: Daemon) -> Iterator[Door]:
    """tcm_loop over those backstores."""
    with looped("naa.5001405000000010", [v.name for v in VOLUMES]) as disks:
        yield Door("tcmu-loop", d, {v.name: disks[v.lun or 0] for v in VOLUMES})
