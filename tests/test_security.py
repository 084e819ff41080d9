"""What docs/security.md promises and no unit test shows: rights of the process, of its files and of its units."""

from __future__ import annotations

import gzip
import os
import re
import resource
import stat
import subprocess
from pathlib import Path

import pytest
from arrays import noise, read, same, write
from harness import REPO, Config, Daemon, MiB, Pool, ToolError, Volume, binary, run

NOBODY = 65534
CONFIG = Config(pools=[Pool("p0")], volumes=[Volume("v", 0, size=64 * MiB)])


class Unprivileged(Daemon):
    """A daemon that runs as nobody, where the tests may become nobody."""

    def spawn(self, argv: list[object]) -> None:  # type: ignore[override]
        """Start the process with no rights but those to its folder."""
        if os.geteuid() != 0:
            super().spawn(argv)
            return
        # The folder of all scratch folders may be private: the daemon gets a copy of its binary beside its data.
        own = self.dir / "arraysim"
        own.write_bytes(binary().read_bytes())
        own.chmod(0o755)
        for folder in self.dir.parents:
            if folder != Path("/") and not folder.stat().st_mode & stat.S_IXOTH:
                raise ToolError(f"{folder} cannot be entered by others; give TMPDIR a folder that can")
        run(["chown", "-R", f"{NOBODY}:{NOBODY}", self.dir])
        with self.log.open("ab") as log:
            argv = [own, *argv[1:]]
            self.proc = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd=self.dir,
            )


def test_runs_without_root(tmp_path: Path) -> None:
    """The portal needs no right: data is written, the daemon is killed and starts again."""
    data = noise(1 * MiB, seed=1)
    with Unprivileged(CONFIG, "nobody") as d:
        text = Path(f"/proc/{d.proc.pid}/status").read_text()
        uid, cap = (re.search(rf"^{k}:\s+(\S+)", text, re.M)[1] for k in ("Uid", "CapEff"))  # type: ignore[index]
        assert int(uid) != 0 and int(cap, 16) == 0
        write(d, 0, 100, data, tmp_path)
        d.kill()
        d.start()
        same(read(d, 0, 100, 2048, tmp_path), data)


def test_others_cannot_reach_the_data() -> None:
    """Everything in the data folder, the administration socket too, is for its owner alone."""
    with Daemon(CONFIG, "private") as d:
        assert stat.S_IMODE(d.data.stat().st_mode) & 0o077 == 0
        files = [p for p in d.data.rglob("*") if not p.is_symlink()]
        assert files and any(p.is_socket() for p in files)
        # Behind a folder that nobody else can enter, modes of files are a second wall.
        open_to_others = [p for p in files if p.is_socket() or p.name in ("nvram", "array.json") or p.suffix == ".img"]
        assert [str(p) for p in open_to_others if stat.S_IMODE(p.stat().st_mode) & 0o007] == []
        if os.geteuid() == 0:
            code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(d.data / 'admin.sock')!r})"
            r = subprocess.run(
                ["python3", "-c", code], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
            )
            assert b"PermissionError" in r.stderr, r.stderr


def test_compressed_bomb_takes_no_memory(tmp_path: Path) -> None:
    """A trace of a few kilobytes that unpacks to gigabytes is read as a stream, and given up."""
    bomb = tmp_path / "bomb.csv.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as f:
        for _ in range(256):
            f.write(bytes(MiB))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    r = run([binary(), "replay", bomb], expect=None)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert r.returncode not in (0, None)
    assert after <= max(before, 200 * 1024), f"{after} KiB"


UNITS = {"scripts/systemd/arraysim.service": 20, "scripts/systemd/arraysim-tcmu.service": 75}


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_sandboxed(unit: str, tmp_path: Path) -> None:
    """systemd finds no fault with the units, and rates their exposure (in tenths; 100 is none of a sandbox)."""
    copy = tmp_path / Path(unit).name
    copy.write_text((REPO / unit).read_text().replace("/usr/local/bin/arraysim", str(binary())))
    r = run(["systemd-analyze", "verify", "--man=no", copy])
    assert not re.search(rf"{copy.name}.*(Unknown|Failed|Invalid|ignoring)", r.text), r
    run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={UNITS[unit]}", copy])
