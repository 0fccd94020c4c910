"""Builds our libraries for musl, and fetches musl, libgcc_s and libstdc++ to run programs with
them.

Prints the folder of our libraries, and that of the fetched ones.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import zipfile
from pathlib import Path

import foreign
from build import ORDINARY, TARGETS, Built, build, build_ordinary, installed_targets
from common import FETCH, ROOT, WORK, fail, fresh, install_tools, run, tool

sys.path.insert(0, str(ROOT / "python" / "src" / "llama_sieve"))
import _elf  # noqa: E402

# numpy's wheels for musl contain gcc's unwinder and C++ library, which Debian has only for glibc.
NUMPY = "numpy==2.2.6"
# The first Debian whose musl supports the relative relocations of those libraries.
DEBIAN = "trixie"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="release/musl.py", description=__doc__)
    parser.add_argument("machine", nargs="?", default="x86_64", choices=foreign.ARCHITECTURES)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--ordinary", action="store_true", help="with the tests' libraries, compiled for glibc"
    )
    which.add_argument("--runtime", action="store_true", help="with no libraries of ours")
    given = parser.parse_args()
    if not given.runtime:
        print(_built(given.machine, given.ordinary).library.parent)
    install_tools([])
    print(libraries(given.machine))


def _built(machine: str, ordinary: bool) -> Built:
    """Builds the libraries that a release packs for that processor, or those of the tests."""
    if ordinary:
        if machine != TARGETS[ORDINARY].machine:
            fail(f"--ordinary: the tests' libraries are not for {machine}")
        return build_ordinary(TARGETS[ORDINARY])
    install_tools(["cargo-zigbuild", "ziglang"])
    target = TARGETS[f"{machine}-unknown-linux-musl"]
    installed_targets([target])
    return build(target)


def libraries(machine: str) -> Path:
    """Returns a folder for that processor, with musl, libgcc_s and libstdc++ in its `lib`."""
    folder = WORK / "musl" / machine
    lib = folder / "lib"
    if (lib / "libgcc_s.so.1").exists() and loader(folder, machine).exists():
        return folder
    fresh(lib)
    _unpack_musl(folder, machine)
    _unpack_gcc(folder, machine)
    return folder


def loader(folder: Path, machine: str) -> Path:
    """Returns the path of musl's dynamic linker, which can run a program given as its argument."""
    return folder / "lib" / f"ld-musl-{machine}.so.1"


def _unpack_musl(folder: Path, machine: str) -> None:
    unpacked = fresh(folder / "debian")
    foreign.unpack(unpacked, machine, DEBIAN, ["musl"])
    (library,) = unpacked.glob("usr/lib/*-linux-musl/libc.so")
    shutil.copy(library, loader(folder, machine))


def _unpack_gcc(folder: Path, machine: str) -> None:
    lib = folder / "lib"
    wheels = fresh(folder / "wheels")
    pip = [tool("python"), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    pip += ["--platform", f"musllinux_1_2_{machine}", "--python-version", "3.12"]
    run([FETCH, *pip, "--dest", wheels, NUMPY])
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            if re.match(r"numpy\.libs/lib(gcc_s|stdc\+\+)-", name):
                (lib / Path(name).name).write_bytes(packed.read(name))
    # Links with the usual names. The C++ library needs the unwinder under the wheel's own name.
    (cxx,) = lib.glob("libstdc++-*")
    (lib / "libstdc++.so.6").symlink_to(cxx.name)
    (unwinder,) = (name for name in _elf.read(cxx).needed if name.startswith("libgcc_s"))
    (lib / "libgcc_s.so.1").symlink_to(unwinder)


if __name__ == "__main__":
    main()
