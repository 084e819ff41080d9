"""examples/scripts/lost-path.sh, on a machine that may lose a path."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from guest import RESULTS, Initiator, wait
from harness import REPO, binary, run
from test_multipath import CONF, FAILURES, SECOND, address, background

pytestmark = pytest.mark.kernel_says(FAILURES)


def test_lost_path(initiator: Initiator) -> None:
    run(["modprobe", "-a", "dm_multipath", "dm_service_time"])
    run(["modprobe", "scsi_dh_alua"], expect=None)
    Path("/etc/multipath.conf").write_text(CONF)
    with ExitStack() as stack:
        stack.enter_context(background("udevd", ["/lib/systemd/systemd-udevd"]))
        wait("udevd", lambda: run(["udevadm", "control", "--ping"], expect=None, timeout=120).returncode == 0)
        stack.enter_context(background("multipathd", ["multipathd", "-d", "-v2"]))
        wait("multipathd", lambda: run(["multipathd", "show", "maps"], expect=None).returncode == 0)
        address("add")
        try:
            env = os.environ | {"ARRAYSIM": str(binary())}
            command = [str(REPO / "examples" / "scripts" / "lost-path.sh"), SECOND]
            p = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, env=env
            )
        finally:
            run(["ip", "addr", "del", f"{SECOND}/32", "dev", "lo"], expect=None)
            run(["multipathd", "shutdown"], expect=None)
    (RESULTS / "lost-path.txt").write_text(p.stdout)
    assert p.returncode == 0, p.stdout
    steps = ["the first path is lost", "it is back", "the second path is lost", "it is back", "no write has failed"]
    assert re.search(".*".join(steps), p.stdout, re.DOTALL), p.stdout
    assert len(re.findall(r"active ready running", p.stdout)) >= 2, p.stdout
