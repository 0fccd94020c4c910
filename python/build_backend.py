"""Builds the wheel: the Python files, the shared library and the program, which cargo makes.

The wheel has only the preload library, which contains all functions: a second library would
duplicate the code.

This is a PEP 517 build backend that uses only the standard library. The tag of the wheel is derived
from the built files: the newest glibc version that their symbols require, or `linux` if they need a
library that a manylinux wheel must not depend on.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "src" / "llama_sieve"
BUILT = ("libllama_sieve_preload.so", "llama-sieve")

# The corresponding files in a release for other systems.
ELSEWHERE = ("llama_sieve_preload.dll", "llama-sieve.exe", "libllama_sieve.dylib")

LICENSES = ("LICENSE-APACHE", "LICENSE-MIT")

# The files of an sdist outside this folder: those that cargo needs to build the libraries.
SOURCES = (
    "Cargo.toml",
    "Cargo.lock",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "build.rs",
    "benches",
    "cli",
    "crates",
    "examples",
    "include",
    "preload",
    "src",
    "tests/crates",
    "tests/exports.txt",
    "vendor-llama-cpp",
)

# The libraries that these files could need and PEP 600 allows a wheel to need.
ALLOWED = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux[\w-]*)\.so\.\d+")

Settings = Optional[Dict[str, Any]]


def _repository() -> Path:
    """Returns the folder of Cargo.toml: the parent or, in an sdist, one next to this file."""
    for folder in (HERE / "rust", HERE.parent):
        if (folder / "Cargo.toml").is_file() and (folder / "preload").is_dir():
            return folder
    raise SystemExit(
        f"llama-sieve: no Rust sources in {HERE.parent}. Build from the repository "
        "(pip install ./python, with pip 21.3 or later) or from an sdist."
    )


def _version() -> str:
    text = (_repository() / "Cargo.toml").read_text("utf-8")
    found = re.search(r'^\[workspace\.package\]\s+version = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise SystemExit("llama-sieve: Cargo.toml names no version")
    return found.group(1)


def _build(settings: Settings) -> List[Path]:
    """Builds the files in `BUILT`, or reports missing ones.

    The setting `cargo` holds further arguments for cargo.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit("llama-sieve: only Linux is supported")
    if shutil.which("cargo") is None:
        raise SystemExit(
            "llama-sieve: building the wheel needs Rust (https://rustup.rs); installing it does not"
        )
    command = ["cargo", "build", "--release", "--locked", "--message-format=json"]
    command += ["-p", "llama-sieve-preload", "--lib", "-p", "llama-sieve-cli", "--bin"]
    command += ["llama-sieve"]
    command += str((settings or {}).get("cargo", "")).split()
    made = subprocess.run(command, cwd=_repository(), stdout=subprocess.PIPE, check=False)
    if made.returncode != 0:
        for line in made.stdout.splitlines():
            rendered = (json.loads(line).get("message") or {}).get("rendered")
            sys.stderr.write(rendered or "")
        raise SystemExit("llama-sieve: cargo could not build the library and the program")
    found: Dict[str, Path] = {}
    for line in made.stdout.splitlines():
        for name in json.loads(line).get("filenames") or ():
            found[Path(name).name] = Path(name)
    return [found[name] for name in BUILT]


def _platform_tag(built: List[Path]) -> str:
    """Returns the platform tag of these files; with musl, for 1.2 or newer."""
    sys.path.insert(0, str(PACKAGE))
    try:
        import _elf  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(PACKAGE))
    minor = 17
    machines = set()
    portable = True
    musl = False
    for file in built:
        elf = _elf.read(file)
        musl |= "libc.so" in elf.needed
        machines.add(elf.machine)
        portable &= all(ALLOWED.fullmatch(name) for name in elf.needed)
        for version in elf.versions.get("libc.so.6", set()) | elf.versions.get("libm.so.6", set()):
            numbers = re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)*", version)
            portable &= numbers is not None
            minor = max(minor, int(numbers.group(1)) if numbers else 0)
    (machine,) = machines
    if musl:
        return f"musllinux_1_2_{machine}"
    return f"manylinux_2_{minor}_{machine}" if portable else f"linux_{machine}"


def _metadata(licenses: Iterable[str] = LICENSES) -> str:
    """Returns METADATA, made from pyproject.toml, with the version of Cargo.toml and README.md."""
    text = (HERE / "pyproject.toml").read_text("utf-8")

    def value(name: str) -> str:
        found = re.search(rf'^{name} = "([^"]*)"', text, re.MULTILINE)
        assert found is not None, name
        return found.group(1)

    def values(name: str) -> List[str]:
        found = re.search(rf"^{name} = \[([^\]]*)\]", text, re.MULTILINE)
        assert found is not None, name
        return re.findall(r'"([^"]*)"', found.group(1))

    lines = ["Metadata-Version: 2.4", f"Name: {value('name')}", f"Version: {_version()}"]
    lines.append(f"Summary: {value('description')}")
    lines.append(f"License-Expression: {value('license')}")
    lines += [f"License-File: {name}" for name in licenses]
    lines.append("Keywords: " + ",".join(values("keywords")))
    lines += [f"Classifier: {name}" for name in values("classifiers")]
    lines.append(f"Requires-Python: {value('requires-python')}")
    lines += [f"Requires-Dist: {name}" for name in values("dependencies")]
    lines.append("Provides-Extra: test")
    lines += [f'Requires-Dist: {name}; extra == "test"' for name in values("test")]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text("utf-8")


def _dist_info(
    tag: str, licenses: Tuple[Tuple[str, bytes], ...] = ()
) -> Iterator[Tuple[str, bytes]]:
    folder = f"llama_sieve-{_version()}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: llama-sieve\nRoot-Is-Purelib: false\nTag: {tag}\n"
    scripts = "[console_scripts]\nllama-sieve = llama_sieve.__main__:main\n"
    own = [(name, (_repository() / name).read_bytes()) for name in LICENSES]
    licenses = (*own, *licenses)
    yield f"{folder}/METADATA", _metadata([name for name, _ in licenses]).encode()
    yield f"{folder}/WHEEL", wheel.encode()
    yield f"{folder}/entry_points.txt", scripts.encode()
    for name, content in licenses:
        yield f"{folder}/licenses/{name}", content


OWN = {".py", ".html"}
"""The extensions of the package's own files, besides py.typed."""


def _write_wheel(folder: str, tag: str, files: List[Tuple[str, bytes]]) -> str:
    name = f"llama_sieve-{_version()}-{tag}.whl"
    record = []
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files:
            # A fixed date: the same sources give the same wheel.
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            # pip makes a file executable only if it is marked as a regular file.
            mode = 0o755 if Path(path).name in (*BUILT, *ELSEWHERE) else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            wheel.writestr(entry, content, compresslevel=9)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{path},sha256={digest.decode()},{len(content)}")
        path = f"llama_sieve-{_version()}.dist-info/RECORD"
        entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, "\n".join(record + [f"{path},,", ""]), compresslevel=9)
    return name


def _python_files() -> Iterator[Tuple[str, bytes]]:
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in OWN or path.name == "py.typed":
            yield str(path.relative_to(PACKAGE.parent)), path.read_bytes()


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """PEP 517. The tag is not known before the library is built, and is not used here."""
    folder = Path(metadata_directory)
    for name, content in _dist_info("py3-none-any"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return f"llama_sieve-{_version()}.dist-info"


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    """PEP 517."""
    return wheel_of(_build(config_settings), wheel_directory)


def wheel_of(
    built: List[Path],
    wheel_directory: str,
    licenses: Tuple[Tuple[str, bytes], ...] = (),
    platform: Optional[str] = None,
) -> str:
    """Writes the wheel with the built files, and additional licences by name. Returns its name.

    For Linux files the platform is determined automatically.
    """
    tag = f"py3-none-{platform or _platform_tag(built)}"
    files = list(_python_files())
    files += [(f"llama_sieve/{file.name}", file.read_bytes()) for file in built]
    files += list(_dist_info(tag, licenses))
    return _write_wheel(wheel_directory, tag, files)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    """PEP 660: the sources stay in place, and the built files are put next to them."""
    built = _build(config_settings)
    for file in built:
        # Replaced by a new file, since a process may be running the old one.
        (PACKAGE / file.name).unlink(missing_ok=True)
        shutil.copy2(file, PACKAGE / file.name)
    tag = f"py3-none-{_platform_tag(built)}"
    files = [("__editable__.llama_sieve.pth", f"{PACKAGE.parent}\n".encode())]
    return _write_wheel(wheel_directory, tag, files + list(_dist_info(tag)))


def _source_files() -> Iterator[Tuple[str, Path]]:
    """Returns the name in the sdist and the path of each file: this folder and the sources."""
    own = ["pyproject.toml", "README.md", "build_backend.py"]
    for name in own:
        yield name, HERE / name
    for folder in ("src", "tests"):
        for path in sorted((HERE / folder).rglob("*")):
            if path.suffix in OWN or path.name == "py.typed":
                yield str(path.relative_to(HERE)), path
    repository = _repository()
    for source in SOURCES:
        top = repository / source
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            skip = {"target", "node_modules", "__pycache__", "results"}
            relative = path.relative_to(repository)
            if path.is_file() and not skip & set(relative.parts):
                yield f"rust/{relative}", path


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """PEP 517."""
    base = f"llama_sieve-{_version()}"
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz") as sdist:
        for name, path in _source_files():
            sdist.add(path, f"{base}/{name}")
        content = _metadata().encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(content)
        sdist.addfile(entry, io.BytesIO(content))
    return f"{base}.tar.gz"


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    print(build_wheel(sys.argv[1]))
