"""Rehearses the publication of the crates: everything that cargo does except the upload."""

from __future__ import annotations

import shutil
from pathlib import Path

from common import FETCH, ROOT, WORK, fail, fresh, run, said

# The line in [workspace.package] that a maintainer removes to publish. Crates that are never
# published have a line of their own.
HELD_BACK = "\npublish = false\n"


def rehearse(verify: bool) -> None:
    """Runs `cargo publish --workspace --dry-run` on a copy without `publish = false`.

    With `verify` cargo compiles each crate as it would be downloaded.
    """
    copy = copy_of_sources(fresh(WORK / "crates" / "sources"))
    manifest = copy / "Cargo.toml"
    text = manifest.read_text("utf-8")
    if text.count(HELD_BACK) != 1:
        fail("Cargo.toml should have one line `publish = false`")
    manifest.write_text(text.replace(HELD_BACK, "\npublish = true\n"), "utf-8")
    command = ["cargo", "publish", "--workspace", "--dry-run", "--locked", "--quiet"]
    command += ["--target-dir", str(WORK / "crates" / "target")]
    # Cargo fetches the registry's index.
    run([FETCH, *command, *([] if verify else ["--no-verify"])], copy)


def copy_of_sources(folder: Path) -> Path:
    """Copies all files that git tracks, as they are in the working tree. Returns the folder."""
    for name in said(["git", "ls-files", "-z"]).split("\0"):
        path = ROOT / name
        if name and path.is_file():
            copied = folder / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied, follow_symlinks=False)
    return folder
