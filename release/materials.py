"""Lists the materials of a package: the crates that are linked into it, and their licences."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List

from common import ROOT, fail, said

OURS = ("llama-sieve", "llama-sieve-preload", "llama-sieve-cli")
LICENCE_NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


@dataclass(frozen=True)
class Crate:
    """A crate that is linked into the libraries or the program."""

    name: str
    version: str
    licence: str
    source: str
    checksum: str
    folder: Path
    dependencies: List[str]

    @property
    def url(self) -> str:
        """Its package URL."""
        return f"pkg:cargo/{self.name}@{self.version}"


def linked(triple: str) -> List[Crate]:
    """Returns the crates in a target's libraries and program, including ours, sorted by name."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    described = json.loads(said([*command, "--filter-platform", triple]))
    packages = {package["id"]: package for package in described["packages"]}
    nodes = {node["id"]: _dependencies(node, packages) for node in described["resolve"]["nodes"]}
    open_ones = [id for id, package in packages.items() if package["name"] in OURS]
    found: Dict[str, Crate] = {}
    checksums = _checksums()
    while open_ones:
        id = open_ones.pop()
        if id in found:
            continue
        open_ones += nodes[id]
        package = packages[id]
        key = (package["name"], package["version"])
        found[id] = Crate(
            *key,
            package["license"] or "",
            package["source"] or "",
            checksums.get(key, ""),
            Path(package["manifest_path"]).parent,
            [
                f"pkg:cargo/{packages[other]['name']}@{packages[other]['version']}"
                for other in nodes[id]
            ],
        )
    return sorted(found.values(), key=lambda crate: (crate.name, crate.version))


def _dependencies(node: Dict[str, Any], packages: Dict[str, Any]) -> List[str]:
    """Returns a crate's dependencies that are linked, without those of build scripts and macros."""
    found = []
    for dependency in node["deps"]:
        normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
        targets = packages[dependency["pkg"]]["targets"]
        macro = any("proc-macro" in target["kind"] for target in targets)
        if normal and not macro:
            found.append(dependency["pkg"])
    return sorted(found)


def _checksums() -> Dict[Any, str]:
    """Returns the SHA-256 of each crate's archive, from Cargo.lock."""
    found = {}
    for part in (ROOT / "Cargo.lock").read_text("utf-8").split("[[package]]"):
        values = dict(line.split(" = ", 1) for line in part.splitlines() if " = " in line)
        plain = {name: value.strip('"') for name, value in values.items()}
        if "checksum" in plain:
            found[(plain["name"], plain["version"])] = plain["checksum"]
    return found


def licences(crates: List[Crate]) -> str:
    """Returns one text with the linked crates and their licences, each licence text once."""
    others = [crate for crate in crates if crate.source]
    texts: Dict[str, List[str]] = {}
    for crate in others:
        files = [path for path in sorted(crate.folder.iterdir()) if _is_licence(path)]
        if not files:
            fail(f"{crate.name} {crate.version} has no licence text in {crate.folder}")
        for path in files:
            text = path.read_text("utf-8").replace("\r\n", "\n").strip("\n")
            texts.setdefault(text, []).append(f"{crate.name} {crate.version}")
    parts = [
        "llama-sieve is made of these crates, too, as they were published at "
        "https://crates.io:\n\n"
        + "".join(f"{crate.name} {crate.version}: {crate.licence}\n" for crate in others)
        + "\nAnd of parts of Rust's standard library (https://www.rust-lang.org, MIT OR "
        "Apache-2.0) and of LLVM's compiler-rt (Apache-2.0 WITH LLVM-exception OR MIT).\n"
    ]
    # Sorting puts similar texts next to each other, where they compress better.
    for text, names in sorted(texts.items()):
        parts.append(f"{'=' * 80}\n{', '.join(names)}:\n\n{text}\n")
    return "\n".join(parts)


def _is_licence(path: Path) -> bool:
    return path.is_file() and path.name.upper().startswith(LICENCE_NAMES)


def bill(crates: List[Crate], date: int) -> str:
    """Returns the bill of materials as CycloneDX 1.5 JSON. `date` is in seconds since 1970."""
    (main,) = [crate for crate in crates if crate.name == OURS[0]]
    moment = datetime.fromtimestamp(date, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    described = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": moment, "component": _component(main)},
        "components": [_component(crate) for crate in crates if crate is not main],
        "dependencies": [
            {"ref": crate.url, "dependsOn": sorted(crate.dependencies)} for crate in crates
        ],
    }
    return json.dumps(described, indent=1) + "\n"


def _component(crate: Crate) -> Dict[str, Any]:
    described: Dict[str, Any] = {
        "type": "library",
        "bom-ref": crate.url,
        "name": crate.name,
        "version": crate.version,
        "purl": crate.url,
        # Older crates write "/" for OR.
        "licenses": [{"expression": crate.licence.replace("/", " OR ")}],
    }
    if crate.checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    return described
