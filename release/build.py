"""Compiles the libraries and the program for one target, with cargo.

The linker for Linux is zig, and for Windows MinGW's. For macOS it is LLVM's, which comes with Rust,
because zig's exports every symbol.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, List, Optional

from common import FETCH, ROOT, TARGET, WORK, epoch, fail, fresh, run, said, tool

LIBRARY = "libllama_sieve.so"
PRELOAD = "libllama_sieve_preload.so"
PROGRAM = "llama-sieve"
IMPORTS = "libllama_sieve.dll.a"
# Profiles in Cargo.toml.
PROFILE = "packages"
PROGRAM_PROFILE = "packages-program"
LIBRARIES = ("-p", "llama-sieve", "--lib", "-p", "llama-sieve-preload")
PROGRAMS = ("-p", "llama-sieve-cli", "--bin", PROGRAM)
MINGW = "x86_64-w64-mingw32"
OLDEST_MACOS = "13.0"

# The functions of gcc's unwinder that Rust's standard library uses, by symbol version. They are the
# same on every architecture.
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
    """A platform, by its names in Rust, npm, Debian and Python."""

    triple: str
    machine: str
    npm: str
    debian: Optional[str] = None
    """Debian's name of the architecture, if there are Debian packages."""
    wheel: Optional[str] = None
    """The platform in the wheel's name, if it does not follow from the libraries."""

    @property
    def is_linux(self) -> bool:
        """True for Linux."""
        return "-linux-" in self.triple

    @property
    def is_windows(self) -> bool:
        """True for Windows."""
        return "-windows-" in self.triple

    @property
    def is_macos(self) -> bool:
        """True for macOS."""
        return self.triple.endswith("-apple-darwin")

    @property
    def library(self) -> str:
        """The file name of the library."""
        if self.is_windows:
            return "llama_sieve.dll"
        return LIBRARY if self.is_linux else "libllama_sieve.dylib"

    @property
    def preload(self) -> Optional[str]:
        """The file name of the preload library, if there is one."""
        if self.is_windows:
            return "llama_sieve_preload.dll"
        return PRELOAD if self.is_linux else None

    @property
    def program(self) -> str:
        """The file name of the program."""
        return f"{PROGRAM}.exe" if self.is_windows else PROGRAM

    @property
    def packed(self) -> str:
        """The file name of the library in the wheel and the npm package."""
        return self.preload or self.library

    @property
    def has_symbols(self) -> bool:
        """True if there are packages of debug symbols, as for Debian."""
        return self.debian is not None

    @property
    def zig(self) -> str:
        """The triple with the version of glibc to link with, in cargo-zigbuild's notation."""
        return f"{self.triple}.2.17" if self.triple.endswith("-gnu") else self.triple

    @property
    def is_musl(self) -> bool:
        """True if the C library is musl."""
        return self.triple.endswith("-musl")


TARGETS = {
    target.triple: target
    for target in (
        Target("x86_64-unknown-linux-gnu", "x86_64", "linux-x64", "amd64"),
        Target("aarch64-unknown-linux-gnu", "aarch64", "linux-arm64", "arm64"),
        Target("x86_64-unknown-linux-musl", "x86_64", "linux-x64-musl"),
        Target("aarch64-unknown-linux-musl", "aarch64", "linux-arm64-musl"),
        Target("x86_64-pc-windows-gnu", "x86_64", "win32-x64", wheel="win_amd64"),
        Target("x86_64-apple-darwin", "x86_64", "darwin-x64", wheel="macosx_13_0_x86_64"),
        Target("aarch64-apple-darwin", "aarch64", "darwin-arm64", wheel="macosx_13_0_arm64"),
    )
}


# The target of `ci/release --ordinary`.
ORDINARY = "x86_64-unknown-linux-gnu"


@dataclass(frozen=True)
class Built:
    """The files of one build."""

    target: Target
    library: Path
    preload: Optional[Path]
    program: Path
    symbols: Dict[str, Path] = field(default_factory=dict)
    """Debug symbols, by the name of the file that they belong to; not for all targets."""

    @property
    def files(self) -> List[Path]:
        """The library with all functions, and the program, which looks for it in its own folder.

        Python and Node look up by name the functions that only the other library exports, so they
        need no second copy of the code.
        """
        return [self.preload or self.library, self.program]


def build(target: Target) -> Built:
    """Builds the libraries and the program for that target."""
    environment = _environment(target)
    # A folder per target lets them build in parallel: cargo locks its folder, and mostly uses one
    # core.
    folder = WORK / "cargo" / target.triple
    builder: object = tool("cargo-zigbuild") if target.is_linux else "cargo"
    triple = target.zig if target.is_linux else target.triple
    command = [builder, "build", "--locked", "--target", triple, "--target-dir", folder]
    if target.has_symbols:
        # The program's profile inherits both.
        command += ["--config", f'profile.{PROFILE}.debug = "line-tables-only"']
        command += ["--config", f'profile.{PROFILE}.strip = "none"']
    if target.is_windows:
        # For Windows, Rust puts all functions of a crate into one section, which is linked as a
        # whole. Link-time optimisation drops the unused ones, a sixth of the library. Cargo.toml
        # avoids it because of weak symbols, which Windows does not have.
        command += ["--config", f'profile.{PROFILE}.lto = "fat"']
    run([*command, "--profile", PROFILE, *LIBRARIES], ROOT, environment)
    run([*command, "--profile", PROGRAM_PROFILE, *PROGRAMS], ROOT, environment)
    made = folder / target.triple
    built = _built(target, made / PROFILE, made / PROGRAM_PROFILE)
    return _parted(built) if target.has_symbols else built


def build_ordinary(target: Target) -> Built:
    """Builds for this machine as the tests do, so that cargo has usually built it already."""
    # With the tests' dependencies, and so with the same features.
    command = ["cargo", "build", "--release", "--locked", "-p", "test-crates"]
    run([*command, *LIBRARIES])
    run(["cargo", "build", "--release", "--locked", *PROGRAMS])
    return _built(target, TARGET / "release", TARGET / "release")


def _built(target: Target, libraries: Path, programs: Path) -> Built:
    preload = libraries / target.preload if target.preload else None
    return Built(target, libraries / target.library, preload, programs / target.program)


def _parted(built: Built) -> Built:
    """Splits the files of a build into stripped copies and debug symbols."""
    folder = fresh(WORK / "parted" / built.target.triple)
    symbols = {}
    for file in filter(None, (built.library, built.preload, built.program)):
        symbols[file.name] = folder / f"{file.name}.debug"
        _objcopy("--only-keep-debug", file, symbols[file.name])
        _objcopy("--strip-all", file, folder / file.name)
    return replace(_built(built.target, folder, folder), symbols=symbols)


def _objcopy(*arguments: object) -> None:
    """Runs the objcopy that comes with Rust, which supports all processors."""
    sysroot = Path(said(["rustc", "--print", "sysroot"]).strip())
    (command,) = sysroot.glob("lib/rustlib/*/bin/rust-objcopy")
    run([command, *arguments], ROOT, {**os.environ, "LD_LIBRARY_PATH": str(sysroot / "lib")})


def _environment(target: Target) -> Dict[str, str]:
    """Returns cargo's environment. Equal sources give equal bytes, whatever their folder."""
    # For musl, Rust links statically by default and makes no shared libraries.
    flags = ["-Ctarget-feature=-crt-static"] if target.is_musl else []
    flags += [f"--remap-path-prefix={path}={name}" for path, name in _renamed_paths().items()]
    environment = dict(os.environ)
    for name in ("RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"):
        environment.pop(name, None)
    environment["SOURCE_DATE_EPOCH"] = str(epoch())
    # cargo-zigbuild runs zig through the first Python in PATH.
    environment["PATH"] = f"{tool('python').parent}:{os.environ.get('PATH', '')}"
    if target.is_linux:
        script = fresh(WORK / "exports" / target.triple) / "preload.map"
        script.write_text(_version_script())
        environment["LLAMA_SIEVE_PRELOAD_VERSION_SCRIPT"] = str(script)
        # A relative path, because cargo hashes these flags into the names of symbols.
        flags.append(f"-Clink-arg={os.path.relpath(_unwinder(target), ROOT)}")
        if target.has_symbols:
            flags.append("-Clink-arg=-Wl,--build-id=sha1")
            # Without -g0, the parts of glibc that zig compiles contain paths of this machine in
            # their symbols. zig's usual cache may hold parts that were compiled without it.
            environment["CCC_OVERRIDE_OPTIONS"] = "#+-g0"
            environment["ZIG_GLOBAL_CACHE_DIR"] = str(WORK / "zig")
    elif target.is_windows:
        flags.append("-Clink-arg=-Wl,--no-insert-timestamp")
    else:
        flags += ["-Clinker=rust-lld", "-Clinker-flavor=ld64.lld"]
        environment["SDKROOT"] = str(_macos(target))
        environment["MACOSX_DEPLOYMENT_TARGET"] = OLDEST_MACOS
    environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    return environment


def _renamed_paths() -> Dict[str, str]:
    """Returns the folders of this machine, and the names that replace them in panic messages."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    registries = home / "registry" / "src"
    sources = sorted(registries.iterdir()) if registries.is_dir() else []
    return {str(folder): "crates" for folder in sources} | {str(ROOT): "llama-sieve"}


def _version_script() -> str:
    """Returns a version script: the preload library exports the names in its list, no others."""
    names = (ROOT / "preload" / "exports.txt").read_text("utf-8").split()
    return "{ global: " + "; ".join(names) + "; local: *; };\n"


def _unwinder(target: Target) -> Path:
    """Builds a substitute for libgcc_s to link with, and returns its path.

    Linked with zig's own unwinder, our library would contain a copy of it, and that copy could not
    continue an exception that the host's unwinder has started.
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


def _macos(target: Target) -> Path:
    """Makes a minimal macOS SDK to link with, from zig's list of symbols. Returns its folder."""
    folder = fresh(WORK / "macos" / target.triple) / "usr" / "lib"
    folder.mkdir(parents=True)
    where = "import os, ziglang; print(os.path.dirname(ziglang.__file__))"
    zig = Path(said([tool("python"), "-c", where]).strip())
    for name in ("System", "c", "m"):
        shutil.copy(zig / "lib" / "libc" / "darwin" / "libSystem.tbd", folder / f"lib{name}.tbd")
    # The crate libc links libiconv, but our code does not call it.
    (folder / "libiconv.tbd").write_text(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ x86_64-macos, arm64-macos ]\n"
        "install-name: /usr/lib/libiconv.2.dylib\n...\n"
    )
    return folder.parent.parent


def zig_target(target: Target) -> str:
    """Returns zig's name of a target, such as x86_64-linux-gnu."""
    return target.triple.replace("-unknown", "")


def installed_targets(targets: List[Target]) -> None:
    """Installs Rust's standard library for the targets that lack it."""
    sysroot = Path(said(["rustc", "--print", "sysroot"]).strip())
    for target in targets:
        if not (sysroot / "lib" / "rustlib" / target.triple).is_dir():
            run([FETCH, "rustup", "target", "add", target.triple])


def chosen(names: List[str]) -> List[Target]:
    """Returns the targets with these names, or all of them if there are no names."""
    for name in names:
        if name not in TARGETS:
            fail(f"{name} is not a target of a release; the targets are: {', '.join(TARGETS)}")
    return [TARGETS[name] for name in names or TARGETS]
