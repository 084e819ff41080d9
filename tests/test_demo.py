"""The main job on real input: what `make demo` shows is asserted here."""

from __future__ import annotations

from pathlib import Path

import demo
import pytest
from arrays import NEARLY_NOTHING
from harness import MiB

pytestmark = pytest.mark.slow


def test_clone_and_zero_by_reference(rootfs: Path, tmp_path: Path) -> None:
    size = rootfs.stat().st_size
    write, clone, copy, zero = demo.by_reference(rootfs, tmp_path)
    # The host layer: two steps move the image over the wire, two only describe it.
    assert write.wire > size // 2 and copy.wire > size
    assert clone.wire <= 4 * NEARLY_NOTHING and zero.wire <= NEARLY_NOTHING
    assert clone.described >= size and zero.described == size
    # The lower layer: host data only, nothing for the offloads.
    assert set(write.cache) == {"host"} and set(write.backend) == {"host"}
    assert set(copy.cache) == {"host"} and copy.cache["host"] > size // 2
    for step in (clone, zero):
        assert step.cache == {} and step.backend == {}, step


def test_undercover_effect(rootfs: Path, tmp_path: Path) -> None:
    samples = demo.undercover(rootfs, tmp_path, bandwidth=16 * MiB)
    demo.show_samples(samples)
    assert len(samples) >= 4, "the clone was too fast to be watched"
    assert max(s.host_rate for s in samples) < 0.1e6, "the host layer must show about nothing"
    full = [s for s in samples if s.dirty >= 0.8 * s.limit]
    assert len(full) >= len(samples) // 2, "the clone holds the partition of its pool most of the time"
    assert all(s.used <= s.limit for s in samples)
