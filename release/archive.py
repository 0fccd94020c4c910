"""Packs archives: what an installation has, in one folder that can be put anywhere."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path
from typing import Callable, List

from build import LIBRARY, PRELOAD, Built
from common import DIST, ROOT, WORK, epoch, fresh, said, soname, tool, version

HERE = Path(__file__).resolve().parent


def installed(built: Built, prefix: str, lib: str) -> Path:
    """A folder with what CMake installs below a prefix: libraries, headers, package files.

    CMake would build the libraries; those that are built lie where it would put its own.
    """
    folder = fresh(WORK / "installed" / built.target.triple)
    staged = folder / "build" / "lib" / "release"
    staged.mkdir(parents=True)
    real_name = f"{LIBRARY}.{version()}"
    shutil.copy(built.library, staged / real_name)
    shutil.copy(built.preload, staged / PRELOAD)
    (staged / soname()).symlink_to(real_name)
    (staged / LIBRARY).symlink_to(soname())
    cmake = [tool("cmake"), "-S", ROOT, "-B", folder / "build", "-Wno-author"]
    cmake += ["--log-level=WARNING", "-DLLAMA_SIEVE_TESTS=OFF", "-DLLAMA_SIEVE_STATIC=OFF"]
    cmake += [f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DCMAKE_INSTALL_LIBDIR={lib}"]
    said(cmake)
    # Into another place than the prefix, which cmake has only for the files that it writes.
    below = folder / "root"
    said(["env", f"DESTDIR={below}", tool("cmake"), "--install", folder / "build"])
    return below / prefix.lstrip("/")


def pack(built: Built, licences: str) -> Path:
    """Makes the archive of one target."""
    name = f"llama-sieve-{version()}-{built.target.triple}"
    tree = installed(built, f"/{name}", "lib")
    # The documents are in the repository; here, one page is for who has the archive alone.
    shutil.rmtree(tree / "share")
    text = (HERE / "README.md.in").read_text("utf-8")
    (tree / "README.md").write_text(text.replace("@VERSION@", version()).replace("@NAME@", name))
    for file in ("LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(ROOT / file, tree / file)
    (tree / "THIRD-PARTY-LICENSES.txt").write_text(licences)
    (tree / "bin").mkdir()
    shutil.copy(built.program, tree / "bin" / built.program.name)
    archive = DIST / f"{name}.tar.gz"
    archive.write_bytes(compressed(tar(tree, name)))
    return archive


def entries(tree: Path) -> List[Path]:
    """All below a folder, in an order that does not depend on the machine."""
    return sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).parts)


def tar(tree: Path, name: str, owner: Callable[[tarfile.TarInfo], None] = lambda _: None) -> bytes:
    """A tar file of a folder, under another name: no date, owner or mode is this machine's."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as made:
        for path in [tree, *entries(tree)]:
            relative = path.relative_to(tree)
            entry = made.gettarinfo(path, f"{name}/{relative}" if relative.parts else name)
            entry.mtime = epoch()
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mode = mode_of(path)
            owner(entry)
            if entry.isreg():
                made.addfile(entry, io.BytesIO(path.read_bytes()))
            else:
                made.addfile(entry)
    return content.getvalue()


def mode_of(path: Path) -> int:
    """0755 for folders, programs and libraries, 0644 for other files, as links have it: 0777."""
    if path.is_symlink():
        return 0o777
    if path.is_dir() or path.parent.name == "bin":
        return 0o755
    return 0o755 if ".so" in path.name or path.suffix == ".dylib" else 0o644


def compressed(content: bytes) -> bytes:
    """The same by gzip, without a date."""
    return gzip.compress(content, 9, mtime=0)
