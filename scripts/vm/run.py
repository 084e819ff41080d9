#!/usr/bin/env python3
"""Runs tests in a virtual machine: the kernel's own iSCSI stack, LIO and TCMU, without touching the host's.

    scripts/vm/run.py                               # all of tests/vm
    scripts/vm/run.py tests/vm/test_stack.py -k sg  # a selection, in pytest's words
    scripts/vm/run.py --command 'lsmod; uname -a'   # something else
    scripts/vm/run.py --shell                       # a console for a person
    scripts/vm/run.py --kernel 6.12 ...

The machine is emulated by QEMU and needs no KVM, no network and, once the image
is there (image.py), no download. It starts from the same image every time and
sees a copy of bin/arraysim and tests/, made as it starts. Its output is shown
as it comes; .cache/vm/results/last has the logs: dmesg.log, console.log,
junit.xml, and what the tests left. The exit status is that of the command.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time

import image

REPO = image.REPO
RESULTS = image.CACHE / "results"
KEPT_RUNS = 10

#: What the guest gets a copy of.
PAYLOAD = [
    "bin/arraysim",
    "bin/handler_arraysim.so",
    "tests",
    "scripts/vm",
    "scripts/dbus",
    "scripts/demo.py",
    "docs/targetcli.md",
    "docs/differences.md",
]

#: The emulation goes through strings byte by byte, which kernels prefer where the processor claims to be fast at
#: it (ERMS, FSRM), and computes crc32 instructions (SSE4.2) slower than a table would. Without these claims memory
#: is copied 2 to 3 times as fast, checksums are computed 5 times as fast.
CPU = "max,-erms,-fsrm,-sse4.2"

#: Exit status where there is none of the command's: it gave up, or the guest died.
GAVE_UP = 124


class GuestError(Exception):
    """Why a run ended without a status."""


class BootError(GuestError):
    """The guest did not come up."""


def say(text: str) -> None:
    """Report progress."""
    print(f"vm: {text}", file=sys.stderr, flush=True)


class Guest:
    """One run of the machine: its folder, its QEMU process."""

    def __init__(self, kernel: str, memory: int, cpus: int) -> None:
        self.kernel, self.memory, self.cpus = kernel, memory, cpus
        self.image = image.ensure()
        if not (self.image / f"vmlinuz-{kernel}").exists():
            have = ", ".join(sorted(p.name.removeprefix("vmlinuz-") for p in self.image.glob("vmlinuz-*")))
            raise GuestError(f"the image has no kernel {kernel}, only {have}")
        self.dir = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}"
        self.results = self.dir / "results"
        self.results.mkdir(parents=True)
        self.console = self.results / "console.log"
        self.proc: subprocess.Popen[bytes] | None = None

    def stage(self, task: str, limit: float, environment: list[str], files: list[str]) -> None:
        """Copy what the guest will run, so that a build meanwhile does not disturb it."""
        payload = self.dir / "payload"
        for name in PAYLOAD:
            source, target = REPO / name, payload / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".ruff_cache"))
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for file in files:
            (payload / "files").mkdir(exist_ok=True)
            shutil.copy(file, payload / "files")
        size = shutil.get_terminal_size()
        env = {"TASK": task, "LIMIT": str(int(limit)), "ROWS": str(size.lines), "COLUMNS": str(size.columns)}
        lines = [f"export {k}={shlex.quote(v)}" for k, v in env.items()]
        lines += [f"export {shlex.quote(pair)}" for pair in environment]
        (payload / "env").write_text("\n".join([*lines, ""]))
        last = RESULTS / "last"
        last.unlink(missing_ok=True)
        last.symlink_to(self.dir.name + "/results")
        for old in sorted(p for p in RESULTS.iterdir() if p.is_dir() and not p.is_symlink())[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)

    def argv(self, interactive: bool) -> list[str]:
        """Return QEMU's command line."""
        if shutil.which("qemu-system-x86_64") is None:
            raise GuestError("qemu-system-x86_64 is missing: apt-get install --no-install-recommends qemu-system-x86")
        append = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off random.trust_cpu=on net.ifnames=0"
        # A host that takes the processors away for seconds is no soft lockup and no stall.
        append += " nosoftlockup rcupdate.rcu_cpu_stall_suppress=1"
        # All emulated processors have the same time stamp counter, which the kernel cannot know;
        # any other clock is a device, and asking it the time an exit from the emulated code.
        append += " tsc=reliable"
        stdio = "stdio,id=out,mux=on,signal=off" if interactive else "stdio,id=out,signal=off"
        return [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35,usb=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", CPU),
            *("-smp", str(self.cpus), "-m", str(self.memory)),
            *("-kernel", str(self.image / f"vmlinuz-{self.kernel}")),
            *("-initrd", str(self.image / f"initrd-{self.kernel}"), "-append", append),
            # Writes go to a temporary file: every run starts from the same image.
            *("-drive", f"file={self.image / 'root.ext4'},format=raw,if=none,id=root,snapshot=on,cache=unsafe"),
            *("-device", "virtio-blk-pci,drive=root"),
            *(
                "-fsdev",
                f"local,id=run,path={self.dir},security_model=none",
                "-device",
                "virtio-9p-pci,fsdev=run,mount_tag=run",
            ),
            *("-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", stdio, "-device", "virtconsole,chardev=out"),
            *("-serial", f"file:{self.console}"),
            *(("-mon", "chardev=out") if interactive else ()),
        ]

    def shell(self) -> int:
        """Give the terminal to the guest until it ends."""
        code = subprocess.run(self.argv(interactive=True), check=False).returncode
        return code or int(self.status() or 0)

    def run(self, boot_limit: float, limit: float) -> int:
        """Boot, show the output, return the task's status; GuestError says why there is none."""
        start = time.monotonic()
        # A group of its own: Ctrl-C ends it by us, in order.
        self.proc = subprocess.Popen(
            self.argv(interactive=False), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=0
        )
        assert self.proc.stdout is not None
        out = self.proc.stdout.fileno()
        os.set_blocking(out, False)
        deadline, why = start + boot_limit, f"the guest did not boot within {boot_limit:.0f} s"
        pending, booted = b"", False
        try:
            with selectors.DefaultSelector() as selector, (self.results / "output.log").open("wb") as log:
                selector.register(out, selectors.EVENT_READ)
                while True:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        error = GuestError if booted else BootError
                        raise error(f"{why}; it was stopped. The end of its console:\n{self.console_tail()}")
                    if not selector.select(min(left, 1)):
                        continue
                    data = os.read(out, 65536)
                    if not data:
                        break
                    if not booted:
                        booted = True
                        deadline = time.monotonic() + limit + 30
                        why = f"the guest did not end within {limit:.0f} s, nor stop by itself 30 s later"
                    log.write(data)
                    *lines, pending = (pending + data).replace(b"\r", b"").split(b"\n")
                    for line in lines:
                        print(f"{time.monotonic() - start:6.1f} {line.decode(errors='replace')}", flush=True)
        finally:
            if self.proc.poll() is None:
                try:
                    self.proc.wait(5 if sys.exc_info()[0] is None else 0)
                except subprocess.TimeoutExpired:
                    self.proc.kill()
                    self.proc.wait()
        status = self.status()
        if status is None:
            raise (GuestError if booted else BootError)(
                f"{self.death()}. The end of its console:\n{self.console_tail()}"
            )
        if status == "timeout":
            raise GuestError(f"the guest gave up after {limit:.0f} s; blocked tasks are in dmesg.log and ps.log")
        return int(status)

    def status(self) -> str | None:
        """Return what the guest left as its status, None if it left none."""
        file = self.results / "status"
        return file.read_text().strip() if file.exists() else None

    def death(self) -> str:
        """Return why there is no status, as far as the console tells."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        found = re.search(r"(?:Kernel panic|BUG:|Oops).*", text)
        return f"the guest's kernel ended with {found[0]!r}" if found else "the guest ended without a status"

    def console_tail(self) -> str:
        """Return the last words of the kernel."""
        if not self.console.exists():
            return "  (nothing)"
        lines = self.console.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-25:]) or "  (nothing)"


def task(args: argparse.Namespace, rest: list[str]) -> str:
    """Return the command line that the guest is to run."""
    if args.shell:
        return "shell"
    if args.command:
        return args.command
    if not any(a.startswith("tests/") for a in rest):
        rest = ["tests/vm", *rest]
    return "python3 -m pytest --junitxml=/mnt/run/results/junit.xml " + shlex.join(rest)


def once(args: argparse.Namespace, rest: list[str]) -> int:
    """Run the guest and return its task's status."""
    start = time.monotonic()
    guest = Guest(args.kernel, args.memory, args.cpus)
    guest.stage(task(args, rest), args.limit, args.env, args.file)
    if args.shell:
        return guest.shell()
    try:
        return guest.run(args.boot_limit, args.limit)
    finally:
        shutil.rmtree(guest.dir / "payload", ignore_errors=True)
        say(f"{time.monotonic() - start:.1f} s with kernel {args.kernel}; logs in {guest.results.relative_to(REPO)}")


def main() -> int:
    """Parse the command line and run the guest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="6.1", choices=image.KERNELS, help="which kernel (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="give up after S seconds (%(default)s)")
    parser.add_argument("--boot-limit", type=float, default=240, metavar="S", help="... to boot (%(default)s)")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="default: %(default)s")
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the command")
    parser.add_argument("--file", action="append", default=[], metavar="PATH", help="copied to files/ in the guest")
    parser.add_argument("--shell", action="store_true", help="a console instead of a command")
    parser.add_argument("--command", metavar="COMMAND", help="a shell command instead of tests")
    args, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(GAVE_UP))
    try:
        try:
            return once(args, rest)
        except BootError as e:
            say(f"{e}\nTrying once more.")
            return once(args, rest)
    except (GuestError, image.ImageError) as e:
        say(str(e))
        return GAVE_UP
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
