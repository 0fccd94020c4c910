"""Builds the release packages into dist/: see `ci/release`."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List

import archive
import debian
import materials
import npm
from build import ORDINARY, TARGETS, Built, Target, build, build_ordinary, chosen, installed_targets
from common import DIST, ROOT, epoch, fresh, install_tools, run, tool, version

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="ci/release", description="fills dist/ with packages")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
    parser.add_argument(
        "--ordinary", action="store_true", help="pack this machine's own build, to try the packing"
    )
    given = parser.parse_args()
    targets = [TARGETS[ORDINARY]] if given.ordinary else chosen(given.targets)
    fresh(DIST)
    if given.ordinary:
        install_tools(["cmake"])
        pack(build_ordinary(targets[0]))
    else:
        install_tools(["cargo-zigbuild", "cmake", "ziglang", "zopflipy"])
        installed_targets(targets)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for built in threads.map(build, targets):
                pack(built)
    npm.pack_main()
    if not given.ordinary:
        recompress()
    write_bill(targets)
    write_sums()
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>9} {path.relative_to(ROOT)}")


def pack(built: Built) -> None:
    """Makes all packages of one target."""
    licences = materials.licences(materials.linked(built.target.triple))
    archive.pack(built, licences)
    wheel(built, licences)
    npm.pack_platform(built, licences)
    if built.target.debian is not None:
        debian.pack(built, licences)


def wheel(built: Built, licences: str) -> None:
    """Makes the wheel with the build backend that `pip install ./python` uses."""
    sys.path.insert(0, str(ROOT / "python"))
    import build_backend

    third_party = ("THIRD-PARTY-LICENSES.txt", licences.encode())
    build_backend.wheel_of(built.files, str(DIST), (third_party,), built.target.wheel)


def recompress() -> None:
    """Makes the wheels and the npm packages smaller."""
    packages = [*sorted(DIST.glob("*.whl")), *sorted(DIST.glob("*.tgz"))]
    command = [tool("python"), HERE / "recompress.py"]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda package: run([*command, package]), packages))


def write_bill(targets: List[Target]) -> None:
    """Writes the bill of materials, with every crate that at least one target needs."""
    crates = {crate.url: crate for target in targets for crate in materials.linked(target.triple)}
    bill = materials.bill([crates[url] for url in sorted(crates)], epoch())
    (DIST / f"llama-sieve-{version()}.cdx.json").write_text(bill)


def write_sums() -> None:
    """Writes SHA256SUMS in sha256sum's format."""
    lines = []
    for path in sorted(DIST.iterdir()):
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    (DIST / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
