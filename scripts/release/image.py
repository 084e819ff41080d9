#!/usr/bin/env python3
"""Makes an OCI image of bin/arraysim from scratch, without a container engine, and prints its folder.

    scripts/release/image.py [--output FOLDER] [--tag NAME]

The folder is an OCI image layout: skopeo copy oci:bin/image:TAG docker://..., podman pull oci:bin/image:TAG. The same
source makes the same image, byte for byte. `make image` builds the binary first.

The image runs the portal as a user without rights. It listens on all addresses of the container's own
network, since an address of loopback could not be published; who runs it decides what is.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

USER = 65532
TITLE = "arraysim"
DATA = "/var/lib/arraysim"
PORTAL, METRICS = 3260, 9400
ENTRYPOINT = ["/usr/bin/arraysim"]
SERVE = ["serve", "--data", DATA, "--listen", f"0.0.0.0:{PORTAL}", "--metrics", f"0.0.0.0:{METRICS}"]
#: It asks the daemon by the socket in the data folder, which answers with the array's lock held.
HEALTH = ["/usr/bin/arraysim", "status", "--data", DATA]

#: Names that OCI has for architectures, where Go's differ.
ARCHITECTURES: dict[str, str] = {}


class Layout:
    """An OCI image layout: blobs by digest, and an index."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "blobs" / "sha256").mkdir(parents=True)

    def blob(self, data: bytes, media: str) -> dict[str, Any]:
        """Add a blob; return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self.root / "blobs" / "sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": f"sha256:{digest}", "size": len(data)}

    def document(self, value: Any, media: str) -> dict[str, Any]:
        """Add a JSON document."""
        return self.blob(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), media)


def layer(files: dict[str, tuple[int, int, bytes | None]], at: int) -> bytes:
    """Return a tar archive of files and folders: path -> (owner, mode, contents or None for a folder)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, (owner, mode, data) in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.uid = info.gid = owner
            info.mode, info.mtime = mode, at
            info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            info.size = len(data or b"")
            tar.addfile(info, io.BytesIO(data or b""))
    return out.getvalue()


def contents() -> dict[str, tuple[int, int, bytes | None]]:
    """Return the files of the root."""
    user = f"root:x:0:0:root:/:/sbin/nologin\narraysim:x:{USER}:{USER}:arraysim:{DATA}:/sbin/nologin\n"
    files = {
        "usr/bin/arraysim": (0, 0o755, common.BINARY.read_bytes()),
        "usr/share/doc/arraysim/copyright": (0, 0o644, common.copyright_text().encode()),
        "etc/passwd": (0, 0o644, user.encode()),
        "etc/group": (0, 0o644, f"root:x:0:\narraysim:x:{USER}:\n".encode()),
    }
    folders = {str(parent): (0, 0o755, None) for path in files for parent in Path(path).parents if str(parent) != "."}
    folders |= {"var": (0, 0o755, None), "var/lib": (0, 0o755, None), "tmp": (0, 0o1777, None)}
    return files | folders | {DATA.lstrip("/"): (USER, 0o700, None)}


def image(root: Path, tag: str) -> None:
    """Make the layout in root."""
    made, at = common.build(), common.epoch()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    layout = Layout(root)
    tar = layer(contents(), at)
    # The compressor's output is the same wherever zlib is.
    packed = layout.blob(gzip.compress(tar, 6, mtime=0), "layer.v1.tar+gzip")
    labels = {
        "org.opencontainers.image.title": TITLE,
        "org.opencontainers.image.description": common.DESCRIPTION,
        "org.opencontainers.image.version": made["version"],
        "org.opencontainers.image.revision": made["commit"],
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": "https://github.com/arraysim/arraysim",
    }
    config = {
        "created": created,
        "architecture": common.architecture(made["platform"], ARCHITECTURES),
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {f"{PORTAL}/tcp": {}, f"{METRICS}/tcp": {}},
            "Entrypoint": ENTRYPOINT,
            "Cmd": SERVE,
            "Volumes": {DATA: {}},
            "WorkingDir": "/",
            "Labels": labels,
            "StopSignal": "SIGTERM",
            # Not part of OCI's specification, but of Docker's, which engines read here as well.
            "Healthcheck": {"Test": ["CMD", *HEALTH], "Interval": 10 * 10**9, "Timeout": 5 * 10**9, "Retries": 3},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
        "history": [{"created": created, "created_by": "scripts/release/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": layout.document(config, "config.v1+json"),
        "layers": [packed],
        "annotations": labels,
    }
    entry = layout.document(manifest, "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    entry["platform"] = {"architecture": config["architecture"], "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    (root / "index.json").write_text(json.dumps(index, sort_keys=True))
    (root / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def ours(output: Path) -> bool:
    """Return whether a folder is an image that this script made, and nothing else: only that is replaced."""
    try:
        manifests = json.loads((output / "index.json").read_text())["manifests"]
        blobs = [output / "blobs" / "sha256" / m["digest"].removeprefix("sha256:") for m in manifests]
        titles = {json.loads(b.read_text())["annotations"]["org.opencontainers.image.title"] for b in blobs}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return {e.name for e in output.iterdir()} == {"blobs", "index.json", "oci-layout"} and titles == {TITLE}


def replace(output: Path, make: Callable[[Path], None]) -> None:
    """Have a folder made, and put it in the place of output once it is complete."""
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise SystemExit(f"image: {output} is not a folder; choose another with --output")
    # What is replaced is removed by its own name, which "." and ".." are not.
    output = output.resolve()
    if Path.cwd().is_relative_to(output):
        raise SystemExit(f"image: {output} is the current folder, or has it inside; choose another with --output")
    if output.is_dir() and any(output.iterdir()) and not ours(output):
        raise SystemExit(f"image: {output} is a folder with other things in it; choose another with --output")
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(output.name + f".{os.getpid()}")
    try:
        make(new)
        if output.is_dir():
            shutil.rmtree(output)
        new.rename(output)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def main() -> None:
    """Parse the command line and make the image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=common.REPO / "bin" / "image", help="default: bin/image")
    parser.add_argument("--tag", help="its name in the index (default: the version)")
    args = parser.parse_args()
    # A plus is for no name of an image.
    tag = args.tag or common.build()["version"].removeprefix("v").replace("+", "-")
    replace(args.output, lambda new: image(new, tag))
    print(args.output)


if __name__ == "__main__":
    main()
