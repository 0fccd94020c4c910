"""Packs Debian packages: the library, development files, tools, and debug symbols."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List

import archive
from build import LIBRARY, PRELOAD, PROGRAM, Built
from common import DIST, ROOT, WORK, epoch, fail, fresh, said, soname, version

sys.path.insert(0, str(ROOT / "python" / "src" / "llama_sieve"))
import _elf  # noqa: E402

MAINTAINER = "The llama-sieve maintainers <maintainers@llama-sieve.invalid>"
# The folder below /usr in which debuggers look for symbols by build id.
SYMBOLS = "lib/debug/.build-id"
LIBC = "libc6 (>= 2.17), libgcc-s1 | libgcc1"


@dataclass(frozen=True)
class Package:
    """One package: its name, its dependencies, and which installed files belong to it."""

    name: str
    section: str
    depends: str
    summary: str
    text: str
    takes: Callable[[Path], bool]
    build_ids: str = ""
    """For a package of debug symbols, the build ids of the files that they belong to."""


def symbols_of(build_id: str) -> str:
    """Returns the path below /usr of the debug symbols for a build id."""
    return f"{SYMBOLS}/{build_id[:2]}/{build_id[2:]}.debug"


def packages(lib: str, build_ids: Dict[str, str]) -> List[Package]:
    """Returns all packages. `lib` is the folder of libraries, which depends on the architecture.

    `build_ids` has the build ids by file name. If it has any, packages of debug symbols are
    included.
    """
    number = soname().rsplit(".", 1)[1]
    library = f"libllama-sieve{number}"
    same = f"{library} (= {version()}-1)"
    preload = f"{lib}/{PRELOAD}"
    own = [
        Package(
            library,
            "libs",
            LIBC,
            "samplers for llama.cpp with the same tokens, faster",
            "The shared library. It works in processes with and without llama.cpp.",
            lambda path: str(path).startswith(f"{lib}/{LIBRARY}."),
        ),
        Package(
            "libllama-sieve-dev",
            "libdevel",
            same,
            "samplers for llama.cpp with the same tokens, faster: headers",
            "The headers, and what the linker, pkg-config and CMake look for.",
            lambda path: not str(path).startswith((f"{lib}/{LIBRARY}.", preload, "bin/", SYMBOLS)),
        ),
        Package(
            "llama-sieve-tools",
            "utils",
            f"{LIBC}, {same}",
            "samplers for llama.cpp with the same tokens, faster: tools",
            "The preload library, for programs with a shared libllama; the command llama-sieve.",
            lambda path: str(path) == preload or str(path).startswith("bin/"),
        ),
    ]
    if not build_ids:
        return own
    return own + [
        _for_debuggers(library, [build_ids[LIBRARY]]),
        _for_debuggers("llama-sieve-tools", [build_ids[PRELOAD], build_ids[PROGRAM]]),
    ]


def _for_debuggers(name: str, build_ids: List[str]) -> Package:
    """Returns the package with another package's debug symbols, by Debian's naming scheme."""
    paths = {symbols_of(build_id) for build_id in build_ids}
    return Package(
        f"{name}-dbgsym",
        "debug",
        f"{name} (= {version()}-1)",
        f"debug symbols for {name}",
        "Functions and line numbers for debuggers, which find them by build ids.",
        lambda path: str(path) in paths,
        " ".join(build_ids),
    )


def pack(built: Built, licences: str) -> None:
    """Makes the packages of one target."""
    architecture = built.target.debian
    lib = f"lib/{built.target.machine}-linux-gnu"
    tree = archive.installed(built, "/usr", lib)
    shutil.rmtree(tree / "share")
    (tree / "bin").mkdir()
    shutil.copy(built.program, tree / "bin" / built.program.name)
    build_ids = {}
    for file, symbols in built.symbols.items():
        build_ids[file] = _elf.read(symbols).build_id or fail(f"{file} has no build id")
        into = tree / symbols_of(build_ids[file])
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(symbols, into)
    for package in packages(lib, build_ids):
        folder = fresh(WORK / "debian" / package.name)
        for path in archive.entries(tree):
            relative = path.relative_to(tree)
            if (path.is_symlink() or path.is_file()) and package.takes(relative):
                into = folder / "usr" / relative
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, into, follow_symlinks=False)
        _write_copyright(folder / "usr" / "share" / "doc" / package.name, licences)
        _write_control(folder, package, architecture)
        _set_modes(folder)
        name = f"{package.name}_{version()}-1_{architecture}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", folder, DIST / name]
        said(["env", f"SOURCE_DATE_EPOCH={epoch()}", *command])


def _write_copyright(folder: Path, licences: str) -> None:
    folder.mkdir(parents=True)
    own = [(ROOT / name).read_text("utf-8") for name in ("LICENSE-MIT", "LICENSE-APACHE")]
    first = "llama-sieve is licensed under either of these, at your option.\n"
    (folder / "copyright").write_text("\n".join([first, *own, licences]))


def _write_control(folder: Path, package: Package, architecture: str) -> None:
    control = folder / "DEBIAN"
    files = [path for path in archive.entries(folder) if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files) // 1024 + 1
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in files
    ]
    more = ""
    if package.build_ids:
        more = f"Auto-Built-Package: debug-symbols\nBuild-Ids: {package.build_ids}\n"
    control.mkdir()
    (control / "control").write_text(
        f"Package: {package.name}\nSource: llama-sieve\nVersion: {version()}-1\n"
        f"Architecture: {architecture}\nMulti-Arch: same\nMaintainer: {MAINTAINER}\n"
        f"Installed-Size: {size}\nDepends: {package.depends}\nSection: {package.section}\n"
        f"Priority: optional\n{more}Description: {package.summary}\n {package.text}\n"
    )
    (control / "md5sums").write_text("".join(sums))
    if package.section == "libs":
        number = soname().rsplit(".", 1)[1]
        needs = f"{package.name} (>= {version()})"
        (control / "shlibs").write_text(f"libllama_sieve {number} {needs}\n")
        (control / "triggers").write_text("activate-noawait ldconfig\n")


def _set_modes(folder: Path) -> None:
    """Sets the modes that Debian uses, with libraries not executable, and the release's date.

    dpkg-deb itself would only change dates that are later.
    """
    folder.chmod(0o755)
    for path in [folder, *archive.entries(folder)]:
        os.utime(path, (epoch(), epoch()), follow_symlinks=False)
        if path != folder and not path.is_symlink():
            program = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if program else 0o644)
