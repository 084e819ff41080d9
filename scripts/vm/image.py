#!/usr/bin/env python3
"""Makes QEMU's image: a disk of the guest's root (root.py) and Debian kernels.

    scripts/vm/image.py [--force]

Prints the folder of the image under .cache/vm, which has for every kernel in
KERNELS vmlinuz-<name> and initrd-<name>, and root.ext4. The folder's name is a
hash of the files that the image depends on: a second call needs no network and
returns at once.

Needs root, mmdebstrap, mke2fs and depmod. Packages come from the machine's own
apt sources.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

from root import HERE, ImageError, cached, key, need, network_settings, say
from root import ensure as ensure_root

#: Kernels by name: the meta package, and whether the image is useless without it.
KERNELS = {"6.1": ("linux-image-amd64", True), "6.12": ("linux-image-6.12-amd64", False)}

#: Modules that stay in the image: folders and files under lib/modules/*/kernel.
#: The rest (380 MB of drivers of real hardware) is left out.
KEEP = """
arch/x86/crypto crypto lib fs/9p fs/configfs fs/ext4 fs/jbd2 fs/fuse fs/mbcache fs/xfs fs/exportfs fs/nls net/9p
fs/netfs fs/fscache drivers/target drivers/uio drivers/virtio drivers/md drivers/block/virtio_blk drivers/block/loop
drivers/block/null_blk drivers/block/brd drivers/block/nbd drivers/char/virtio_console drivers/char/hw_random
drivers/net/virtio_net drivers/net/net_failover net/core net/packet drivers/scsi/device_handler drivers/scsi/sd_mod
drivers/scsi/sg drivers/scsi/scsi_ drivers/scsi/scsi_mod drivers/scsi/sr_mod drivers/scsi/ses drivers/scsi/iscsi
drivers/scsi/libiscsi drivers/scsi/virtio_scsi drivers/cdrom drivers/dax drivers/nvdimm
""".split()
DROP = ("kernel/drivers/target/iscsi/cxgbit", "kernel/drivers/target/sbp", "kernel/drivers/target/tcm_fc")

#: What the initial RAM disk must load to reach the disk and the shared folder.
EARLY = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "9pnet_virtio", "9p", "virtio_console"]


def ensure(force: bool = False) -> Path:
    """Return the folder of the image, built first if it is missing or out of date."""
    hashed = key("packages.txt", "root.py", "uml-init.sh", "image.py", "initramfs.sh")
    return cached("image", hashed, build, force)


def build(work: Path) -> None:
    """Make all files of the image in work."""
    need({"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "depmod": "kmod"})
    tree, debs = work / "root", work / "debs"
    # Two images' worth of space for a while, so that QEMU's modules stay out of the folder that is shared.
    subprocess.run(["cp", "-a", "--reflink=auto", ensure_root(), tree], check=True)
    debs.mkdir()
    fetch(debs)
    for name, (package, needed) in KERNELS.items():
        found = sorted((debs / package).glob("*.deb"))
        if found:
            say(f"kernel {name}: {found[0].name.split('_')[0].removeprefix('linux-image-')}")
            kernel(work, tree, name, found[0])
        elif needed:
            raise ImageError(f"no package {package} in the apt sources: run apt-get update")
        else:
            say(f"kernel {name}: no package {package} in the apt sources, left out")
    shutil.rmtree(debs)
    say("making the file system")
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^metadata_csum"]
        + ["-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", "-d", tree, work / "root.ext4", "8G"],
        check=True,
    )
    shutil.rmtree(tree)


def fetch(debs: Path) -> None:
    """Download the kernels' packages, each into a folder of its meta package's name.

    They are unpacked and not installed: that would make an initial RAM disk of Debian's for each.
    """
    for package, _ in KERNELS.values():
        folder = debs / package
        folder.mkdir()
        said = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True, check=False).stdout
        names = [word for word in said.split() if word.startswith("linux-image-")]
        if len(names) > 1:  # the first is the meta package itself
            options = [o for line in network_settings() for o in ("-o", line.rstrip(";").replace(" ", "=", 1))]
            subprocess.run(["apt-get", "-qq", *options, "download", names[1]], cwd=folder, check=True)


def kernel(work: Path, root: Path, name: str, deb: Path) -> None:
    """Put a kernel beside the root file system, its modules into it, and make its initial RAM disk."""
    tree = work / f"kernel-{name}"
    subprocess.run(["dpkg-deb", "-x", deb, tree], check=True)
    shutil.copy(next((tree / "boot").glob("vmlinuz-*")), work / f"vmlinuz-{name}")
    source = next(tree.glob("**/lib/modules/*"))
    release = source.name
    subprocess.run(["depmod", "-b", tree, release], check=True)
    needs = dependencies(source)
    kept = [p for p in needs if p.startswith(tuple(f"kernel/{k}" for k in KEEP)) and not p.startswith(DROP)]
    target = root / "usr/lib/modules" / release
    for path in {p for k in kept for p in [k, *needs[k]]}:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, target / path)
    for listing in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
        shutil.copy(source / listing, target)
    subprocess.run(["depmod", "-b", root, release], check=True)
    (work / f"initrd-{name}").write_bytes(initramfs(root, release))
    shutil.rmtree(tree)


def dependencies(modules: Path) -> dict[str, list[str]]:
    """Return all modules with those that they need, as paths, from depmod's listing."""
    lines = (modules / "modules.dep").read_text().splitlines()
    return {path: needs.split() for path, _, needs in (line.partition(":") for line in lines)}


def initramfs(root: Path, release: str) -> bytes:
    """Return an initial RAM disk with initramfs.sh and the EARLY modules."""
    modules = root / "usr/lib/modules" / release
    needs = dependencies(modules)
    paths = {Path(p).name.split(".")[0].replace("-", "_"): p for p in needs}
    order: list[str] = []
    for path in (paths[m] for m in EARLY if m in paths):  # else it is built in
        order += [p for p in [*reversed(needs[path]), path] if p not in order]
    files = {
        "init": (0o100755, (HERE / "initramfs.sh").read_bytes()),
        "bin/busybox": (0o100755, (root / "bin/busybox").read_bytes()),
        "modules/order": (0o100644, "\n".join(Path(p).name for p in order).encode()),
    }
    for p in order:
        files[f"modules/{Path(p).name}"] = (0o100644, (modules / p).read_bytes())
    return gzip.compress(cpio(files), 1)


def cpio(files: dict[str, tuple[int, bytes]]) -> bytes:
    """Return a newc archive (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst)."""
    out = bytearray()

    def add(name: str, mode: int, data: bytes, inode: int) -> None:
        fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0")
        out.extend(bytes(-len(out) % 4))
        out.extend(data)
        out.extend(bytes(-len(out) % 4))

    folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
    for inode, folder in enumerate([*folders, "dev"], 1):
        add(folder, 0o040755, b"", inode)
    for inode, (name, (mode, data)) in enumerate(files.items(), 100):
        add(name, mode, data, inode)
    add("TRAILER!!!", 0, b"", 0)
    return bytes(out)


if __name__ == "__main__":
    try:
        print(ensure("--force" in sys.argv[1:]))
    except ImageError as e:
        sys.exit(f"vm image: {e}")
