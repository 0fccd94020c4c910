"""Packs archives: the files of an installation, in one folder that can be put anywhere."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Callable, List

from build import IMPORTS, LIBRARY, PRELOAD, Built, Target
from common import DIST, ROOT, WORK, epoch, fresh, said, soname, tool, version

HERE = Path(__file__).resolve().parent


def installed(built: Built, prefix: str, lib: str) -> Path:
    """Installs with CMake below a prefix: libraries, headers, package files. Returns the folder.

    The built libraries are put where CMake would build its own.
    """
    assert built.preload is not None
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
    # Installs into another folder than the prefix, which only appears in the generated files.
    below = folder / "root"
    said(["env", f"DESTDIR={below}", tool("cmake"), "--install", folder / "build"])
    return below / prefix.lstrip("/")


def laid_out(built: Built) -> Path:
    """Makes a folder with libraries and headers, for targets that CMake does not install."""
    tree = fresh(WORK / "installed" / built.target.triple)
    for name in ("bin", "include", "lib"):
        (tree / name).mkdir()
    for header in sorted((ROOT / "include").glob("*.h")):
        shutil.copy(header, tree / "include")
    # Windows looks for a library in the program's folder.
    libraries = tree / ("bin" if built.target.is_windows else "lib")
    for path in [built.library, built.preload]:
        if path is not None:
            shutil.copy(path, libraries)
    if built.target.is_windows:
        shutil.copy(built.library.with_name(IMPORTS), tree / "lib")
    return tree


def name_of(target: Target) -> str:
    """Returns the name of a target's archive without its extension, and of the folder in it."""
    return f"llama-sieve-{version()}-{target.triple}"


def path_of(target: Target) -> Path:
    """Returns the path of a target's archive."""
    return DIST / (name_of(target) + (".zip" if target.is_windows else ".tar.gz"))


def pack(built: Built, licences: str) -> Path:
    """Makes the archive of one target."""
    name = name_of(built.target)
    if built.target.is_linux:
        tree = installed(built, f"/{name}", "lib")
        # The documentation stays in the repository; the archive has one page of its own.
        shutil.rmtree(tree / "share")
        (tree / "bin").mkdir()
    else:
        tree = laid_out(built)
    text = (HERE / f"README{_system(built.target)}.md.in").read_text("utf-8")
    (tree / "README.md").write_text(text.replace("@VERSION@", version()))
    for file in ("LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(ROOT / file, tree / file)
    (tree / "THIRD-PARTY-LICENSES.txt").write_text(licences)
    shutil.copy(built.program, tree / "bin" / built.program.name)
    archive = path_of(built.target)
    if built.target.is_windows:
        archive.write_bytes(zipped(tree, name))
    else:
        archive.write_bytes(compressed(tar(tree, name)))
    return archive


def _system(target: Target) -> str:
    if target.is_linux:
        return ""
    return "-windows" if target.is_windows else "-macos"


def zipped(tree: Path, name: str) -> bytes:
    """Returns a zip file of a folder, under another name, with the release's date."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for path in entries(tree):
            if path.is_file():
                inside = f"{name}/{path.relative_to(tree).as_posix()}"
                entry = zipfile.ZipInfo(inside, time.gmtime(epoch())[:6])
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = mode_of(path) << 16
                made.writestr(entry, path.read_bytes(), compresslevel=9)
    return content.getvalue()


def entries(tree: Path) -> List[Path]:
    """Returns everything below a folder, in an order that does not depend on the machine."""
    return sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).parts)


def tar(tree: Path, name: str, owner: Callable[[tarfile.TarInfo], None] = lambda _: None) -> bytes:
    """Returns a tar file of a folder, under another name. Dates, owners and modes are fixed."""
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
    """Returns 0755 for folders, programs and libraries, 0777 for links, 0644 for other files."""
    if path.is_symlink():
        return 0o777
    if path.is_dir() or path.parent.name == "bin":
        return 0o755
    return 0o755 if ".so" in path.name or path.suffix == ".dylib" else 0o644


def compressed(content: bytes) -> bytes:
    """Compresses with gzip, without a date."""
    return gzip.compress(content, 9, mtime=0)
