"""Packs the npm packages: llama-sieve, and one for each platform, which contains the library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List

from build import TARGETS, Built
from common import DIST, ROOT, WORK, fresh, said, version

NODE = ROOT / "node"
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]


def platform_package(target_name: str) -> str:
    """Returns the name of a platform's package, in a scope that reserves all these names."""
    return f"@llama-sieve/{target_name}"


def pack_platform(built: Built, licences: str) -> None:
    """Makes the package with one platform's library and program."""
    target = built.target
    system, processor = target.npm.split("-")[:2]
    name = platform_package(target.npm)
    folder = fresh(WORK / "npm" / target.npm)
    for file in built.files:
        shutil.copy(file, folder / file.name)
    described = _package() | {
        "name": name,
        "description": f"The library and the program of llama-sieve for {target.triple}",
        "os": [system],
        "cpu": [processor],
        **({"libc": ["musl" if target.is_musl else "glibc"]} if target.is_linux else {}),
        "files": [file.name for file in built.files] + ["THIRD-PARTY-LICENSES.txt"],
    }
    (folder / "README.md").write_text(
        f"# {name}\n\nThe library of [llama-sieve](https://www.npmjs.com/package/llama-sieve) "
        f"for {target.triple}. npm installs this package with llama-sieve, where it fits.\n"
    )
    (folder / "THIRD-PARTY-LICENSES.txt").write_text(licences)
    _pack(folder, described)


def pack_main() -> None:
    """Makes the package llama-sieve, which depends on those of the platforms for the library."""
    folder = fresh(WORK / "npm" / "llama-sieve")
    described = json.loads((NODE / "package.json").read_text("utf-8"))
    for name in described["files"]:
        for path in [NODE / name] if (NODE / name).is_file() else sorted((NODE / name).iterdir()):
            if path.suffix not in (".so", ".dll", ".dylib"):
                copied = folder / path.relative_to(NODE)
                copied.parent.mkdir(exist_ok=True)
                shutil.copy(path, copied)
    # Fields for building and testing are left out.
    for name in ("private", "scripts", "devDependencies"):
        described.pop(name)
    names = [platform_package(target.npm) for target in TARGETS.values()]
    described["optionalDependencies"] = {name: version() for name in sorted(names)}
    if described["version"] != version():
        raise SystemExit("release: node/package.json and Cargo.toml differ in the version")
    _pack(folder, described)


def _package() -> Dict[str, Any]:
    """Returns the fields that all packages share."""
    described = json.loads((NODE / "package.json").read_text("utf-8"))
    return {name: described[name] for name in ("version", "license", "engines")}


def _pack(folder: Path, described: Dict[str, Any]) -> None:
    described["files"] += LICENCES
    (folder / "package.json").write_text(json.dumps(described, indent=2) + "\n")
    for name in LICENCES:
        shutil.copy(ROOT / name, folder / name)
    command: List[object] = ["npm", "pack", "--silent", "--ignore-scripts"]
    said([*command, "--pack-destination", DIST], folder)
