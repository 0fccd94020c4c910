"""Compiles the libraries for one target, with cargo and, as the linker, zig."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

from common import ROOT, TARGET, WORK, epoch, fail, fresh, run, said, tool

LIBRARY = "libllama_sieve.so"
PRELOAD = "libllama_sieve_preload.so"
PROGRAM = "llama-sieve"
# Of Cargo.toml.
PROFILE = "packages"
PROGRAM_PROFILE = "packages-program"
LIBRARIES = ("-p", "llama-sieve", "--lib", "-p", "llama-sieve-preload")
PROGRAMS = ("-p", "llama-sieve-cli", "--bin", PROGRAM)

# gcc's unwinder, as far as Rust's standard library asks for it, and the versions of its names: what
# GCC's manual calls its ABI, and the same on every architecture.
UNWINDER = {
    "GCC_3.0": (
        "DeleteException",
        "GetDataRelBase",
        "GetGR",
        "GetIP",
        "GetLanguageSpecificData",
        "GetRegionStart",
        "GetTextRelBase",
        "RaiseException",
        "Resume",
        "SetGR",
        "SetIP",
    ),
    "GCC_3.3": ("Backtrace", "FindEnclosingFunction", "GetCFA", "Resume_or_Rethrow"),
    "GCC_4.2.0": ("GetIPInfo",),
}


@dataclass(frozen=True)
class Target:
    """Where a package runs, in the words of those who name it."""

    triple: str
    machine: str
    npm: str
    debian: Optional[str]
    """Debian's name of the architecture, where there are packages for Debian."""

    @property
    def zig(self) -> str:
        """The triple with the version of glibc that is linked with, as cargo-zigbuild has it."""
        return self.triple if self.is_musl else f"{self.triple}.2.17"

    @property
    def is_musl(self) -> bool:
        """True where the C library is musl."""
        return self.triple.endswith("-musl")


TARGETS = {
    target.triple: target
    for target in (
        Target("x86_64-unknown-linux-gnu", "x86_64", "linux-x64", "amd64"),
        Target("aarch64-unknown-linux-gnu", "aarch64", "linux-arm64", "arm64"),
        Target("x86_64-unknown-linux-musl", "x86_64", "linux-x64-musl", None),
        Target("aarch64-unknown-linux-musl", "aarch64", "linux-arm64-musl", None),
    )
}


# That of the machine which packs.
ORDINARY = "x86_64-unknown-linux-gnu"


@dataclass(frozen=True)
class Built:
    """What one build has made."""

    target: Target
    library: Path
    preload: Path
    program: Path

    @property
    def files(self) -> List[Path]:
        """The library that has all functions, and the program, which looks for it beside itself.

        Python and Node get by name what only the other library exports, and so need no second copy
        of the code.
        """
        return [self.preload, self.program]


def build(target: Target) -> Built:
    """The libraries and the program for that target."""
    environment = _environment(target)
    # One for each target: cargo runs once at a time in a folder, and keeps one core busy mostly.
    folder = WORK / "cargo" / target.triple
    command = [tool("cargo-zigbuild"), "build", "--locked", "--target", target.zig]
    command += ["--target-dir", folder]
    run([*command, "--profile", PROFILE, *LIBRARIES], ROOT, environment)
    run([*command, "--profile", PROGRAM_PROFILE, *PROGRAMS], ROOT, environment)
    made = folder / target.triple
    return _built(target, made / PROFILE, made / PROGRAM_PROFILE)


def build_ordinary(target: Target) -> Built:
    """This machine's own as the tests have it, unless cargo has built it already."""
    # With what the tests use of other crates, and so with the same features.
    command = ["cargo", "build", "--release", "--locked", "-p", "test-crates"]
    run([*command, *LIBRARIES])
    run(["cargo", "build", "--release", "--locked", *PROGRAMS])
    return _built(target, TARGET / "release", TARGET / "release")


def _built(target: Target, libraries: Path, programs: Path) -> Built:
    return Built(target, libraries / LIBRARY, libraries / PRELOAD, programs / PROGRAM)


def _environment(target: Target) -> Dict[str, str]:
    """What cargo is told: the same sources give the same bytes, wherever they are."""
    # For musl cargo would link everything statically by default, and make no shared library at all.
    flags = ["-Ctarget-feature=-crt-static"] if target.is_musl else []
    flags += [f"--remap-path-prefix={path}={name}" for path, name in _renamed_paths().items()]
    environment = dict(os.environ)
    for name in ("RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"):
        environment.pop(name, None)
    environment["SOURCE_DATE_EPOCH"] = str(epoch())
    # cargo-zigbuild asks for the python that has zig.
    environment["PATH"] = f"{tool('python').parent}:{os.environ.get('PATH', '')}"
    script = fresh(WORK / "exports" / target.triple) / "preload.map"
    script.write_text(_version_script())
    environment["LLAMA_SIEVE_PRELOAD_VERSION_SCRIPT"] = str(script)
    # A relative path: cargo makes the names of symbols from these flags, too.
    flags.append(f"-Clink-arg={os.path.relpath(_unwinder(target), ROOT)}")
    environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    return environment


def _renamed_paths() -> Dict[str, str]:
    """Folders of this machine, and what stands for them in messages of panics."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    registries = home / "registry" / "src"
    sources = sorted(registries.iterdir()) if registries.is_dir() else []
    return {str(folder): "crates" for folder in sources} | {str(ROOT): "llama-sieve"}


def _version_script() -> str:
    """What the preload library exports: the names of its list, and not llama-sieve's."""
    names = (ROOT / "preload" / "exports.txt").read_text("utf-8").split()
    return "{ global: " + "; ".join(names) + "; local: *; };\n"


def _unwinder(target: Target) -> Path:
    """A library that stands for libgcc_s while linking.

    Linked with zig's own unwinder, a library would carry a copy of it, and that one could not go on
    with an exception that the host's has begun.
    """
    folder = fresh(WORK / "unwinder" / target.triple)
    code, script, library = (folder / name for name in ("u.c", "u.map", "libgcc_s.so.1"))
    names = [f"_Unwind_{name}" for group in UNWINDER.values() for name in group]
    code.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    groups = []
    for label, group in UNWINDER.items():
        groups.append(f"{label} {{ {' '.join(f'_Unwind_{name};' for name in group)} }};\n")
    script.write_text("".join(groups))
    command = [tool("python"), "-m", "ziglang", "cc", "-target", zig_target(target)]
    command += ["-shared", "-nostdlib", f"-Wl,-soname,{library.name}"]
    command += [f"-Wl,--version-script={script}", "-o", library, code]
    run(command)
    return library


def zig_target(target: Target) -> str:
    """A target as zig itself names it: x86_64-linux-gnu."""
    return target.triple.replace("-unknown", "")


def installed_targets(targets: List[Target]) -> None:
    """Gets Rust's standard library for those targets that lack it here."""
    sysroot = Path(said(["rustc", "--print", "sysroot"]).strip())
    for target in targets:
        if not (sysroot / "lib" / "rustlib" / target.triple).is_dir():
            run(["rustup", "target", "add", target.triple])


def chosen(names: List[str]) -> List[Target]:
    """The targets of these names; all of them where none is given."""
    for name in names:
        if name not in TARGETS:
            fail(f"{name} is no target of a release; these are: {', '.join(TARGETS)}")
    return [TARGETS[name] for name in names or TARGETS]
