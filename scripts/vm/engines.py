"""What a guest runs in: User Mode Linux, a kernel as a process on the real processor, or QEMU, emulated.

An engine turns a folder and a size into a command line. It knows nothing of tests; a
guest (machine.py) knows nothing of engines.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import image
import root


class GuestError(Exception):
    """Why a run ended without a status."""


@dataclass(frozen=True)
class Size:
    """What a guest gets: MiB of memory, processors."""

    memory: int = 2048
    cpus: int = 2


def xstate() -> Path:
    """Return the library by which the kernel can set all registers of the host's processor; see xstate.c."""

    def build(work: Path) -> None:
        flags = ["-O2", "-Wall", "-Wextra", "-fPIC", "-shared"]
        subprocess.run(["gcc", *flags, "-o", work / "xstate.so", root.HERE / "xstate.c", "-ldl"], check=True)

    if shutil.which("gcc") is None:
        raise GuestError("gcc is missing: apt-get install --no-install-recommends gcc libc6-dev")
    return root.cached("xstate", root.key("xstate.c"), build, force=False) / "xstate.so"


class Uml:
    """User Mode Linux: Debian's kernel 6.1 as a process of the host, with one processor.

    Its root is the prepared folder itself. A second guest costs its memory and nothing else.
    """

    name = "uml"
    #: Guests side by side, at most one more than there are processors: each waits for a third of its time.
    parallel = 3
    #: It has one processor, whatever it is given.
    single = True
    #: Seconds from start to guest.sh, on a machine that is busy with other things. systemd took 13 at a load of 30, and
    #: more than 60, twice in a row, at one of 50 to 90.
    boot_limit = 180.0

    def __init__(self) -> None:
        self.root = root.ensure()
        self.registers = xstate()

    def argv(self, run: Path, size: Size, interactive: bool) -> list[str]:
        """Return the command line for a guest whose folder is run."""
        terminal = "fd:0,fd:1" if interactive else "null,fd:1"
        return [
            *("env", f"LD_PRELOAD={self.registers}", str(self.root / "usr/bin/linux.uml")),
            f"mem={size.memory}M",
            *("root=/dev/root", "rootfstype=hostfs", f"rootflags={self.root}", "ro"),
            *("init=/usr/local/sbin/guest-init", f"GUEST_RUN={run}"),
            *("quiet", "panic=-1", "oops=panic", "random.trust_cpu=on"),
            # What Btrfs would choose its RAID 6 by measures for most of a second how fast four ways are.
            "initcall_blacklist=raid6_select_algo",
            # The kernel speaks on the first console, which goes to its log, guest.sh on the second.
            *("con=null", "con0=null,fd:2", f"con1={terminal}", f"uml_dir={run}/uml/", "umid=guest"),
        ]


class Qemu:
    """QEMU's software emulation: any kernel, several processors, an order of magnitude slower."""

    name = "qemu"
    parallel = 1
    single = False
    boot_limit = 240.0

    #: The emulation goes through strings byte by byte, which kernels prefer where the processor claims to be fast at
    #: it (ERMS, FSRM), and computes crc32 instructions (SSE4.2) slower than a table would. Without these claims memory
    #: is copied 2 to 3 times as fast, checksums are computed 5 times as fast.
    CPU = "max,-erms,-fsrm,-sse4.2"

    def __init__(self, kernel: str) -> None:
        if shutil.which("qemu-system-x86_64") is None:
            raise GuestError("qemu-system-x86_64 is missing: apt-get install --no-install-recommends qemu-system-x86")
        self.kernel, self.image = kernel, image.ensure()
        if not (self.image / f"vmlinuz-{kernel}").exists():
            have = ", ".join(sorted(p.name.removeprefix("vmlinuz-") for p in self.image.glob("vmlinuz-*")))
            raise GuestError(f"the image has no kernel {kernel}, only {have}")

    def argv(self, run: Path, size: Size, interactive: bool) -> list[str]:
        """Return the command line for a guest whose folder is run."""
        append = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off random.trust_cpu=on net.ifnames=0"
        # A host that takes the processors away for seconds is no soft lockup and no stall.
        append += " nosoftlockup rcupdate.rcu_cpu_stall_suppress=1"
        # All emulated processors have the same time stamp counter, which the kernel cannot know;
        # any other clock is a device, and asking it the time an exit from the emulated code.
        append += " tsc=reliable"
        stdio = "stdio,id=out,mux=on,signal=off" if interactive else "stdio,id=out,signal=off"
        return [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35,usb=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", self.CPU),
            *("-smp", str(size.cpus), "-m", str(size.memory)),
            *("-kernel", str(self.image / f"vmlinuz-{self.kernel}")),
            *("-initrd", str(self.image / f"initrd-{self.kernel}"), "-append", append),
            # Writes go to a temporary file: every run starts from the same image.
            *("-drive", f"file={self.image / 'root.ext4'},format=raw,if=none,id=root,snapshot=on,cache=unsafe"),
            *("-device", "virtio-blk-pci,drive=root"),
            *("-fsdev", f"local,id=run,path={run},security_model=none"),
            *("-device", "virtio-9p-pci,fsdev=run,mount_tag=run"),
            *("-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", stdio, "-device", "virtconsole,chardev=out"),
            *("-serial", "file:/dev/stderr"),
            *(("-mon", "chardev=out") if interactive else ()),
        ]


Engine = Uml | Qemu
