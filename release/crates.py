"""Tries to publish the crates: all that cargo asks for, but the upload."""

from __future__ import annotations

import shutil
from pathlib import Path

from common import FETCH, ROOT, WORK, fail, fresh, run, said

# What a person takes away to publish; crates that nobody else needs have a line of their own.
HELD_BACK = "\npublish = false\n"


def rehearse(verify: bool) -> None:
    """`cargo publish --workspace --dry-run` on a copy that may be published.

    With `verify` it compiles each crate as it would be downloaded.
    """
    copy = copy_of_sources(fresh(WORK / "crates" / "sources"))
    manifest = copy / "Cargo.toml"
    text = manifest.read_text("utf-8")
    if text.count(HELD_BACK) != 1:
        fail("Cargo.toml was to have one line `publish = false`")
    manifest.write_text(text.replace(HELD_BACK, "\npublish = true\n"), "utf-8")
    command = ["cargo", "publish", "--workspace", "--dry-run", "--locked", "--quiet"]
    command += ["--target-dir", str(WORK / "crates" / "target")]
    # It asks the registry for the index.
    run([FETCH, *command, *([] if verify else ["--no-verify"])], copy)


def copy_of_sources(folder: Path) -> Path:
    """What git knows of, as it is in the working tree."""
    for name in said(["git", "ls-files", "-z"]).split("\0"):
        path = ROOT / name
        if name and path.is_file():
            copied = folder / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied, follow_symlinks=False)
    return folder
