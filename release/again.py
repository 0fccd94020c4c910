"""Builds a release again in another folder, and compares the bytes."""

from __future__ import annotations

import os
from typing import List

import crates
from build import Target
from common import DIST, TARGET, WORK, epoch, fail, fresh, run

SUMS = "SHA256SUMS"


def compare(targets: List[Target]) -> None:
    """Runs `ci/release` on a copy of the sources in a deeper folder. Exits if any bytes differ."""
    copy = crates.copy_of_sources(fresh(WORK / "again" / "in" / "another" / "folder"))
    (copy / "target").mkdir()
    # The tools are not installed again.
    (copy / "target" / "release-tools").symlink_to(TARGET / "release-tools")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch())}
    environment.pop("CARGO_TARGET_DIR", None)
    run(["ci/release", *(target.triple for target in targets)], copy, environment)
    first, second = ((folder / SUMS).read_text("utf-8") for folder in (DIST, copy / "dist"))
    differ = sorted(set(first.splitlines()) ^ set(second.splitlines()))
    if differ:
        names = sorted({line.split("  ")[1] for line in differ})
        fail(f"built again, these have other bytes: {', '.join(names)}; see {copy / 'dist'}")
