"""Which llama.cpp a process, a library or a program has, and what ours would do for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

from . import _elf, launch
from ._library import simd, version

# What makes a library or program a llama.cpp, and what one needs to take samplers of others.
_MARK = "llama_sampler_chain_init"
_TAKES_OTHERS = "llama_sampler_init"

# Younger than that by the names they export: the names, and the build that brought them.
_SIGNS = (("llama_version", 10_394), ("llama_sampler_copy", 10_355), ("llama_set_sampler", 7_627))

_PRELOAD_MARK = "llama_sieve_preload_marker"
# What is ours and calls them, too.
_OURS = {"llama_sieve_version", _PRELOAD_MARK}

# Kinds whose argument lists have changed, or may, with a build that has each of the known lists.
_LISTS = {"penalties": (11_434, 10_000), "dry": (11_434, 10_000), "logit-bias": (11_434,)}

# What needs a vocabulary, and so is compared when the program first asks for it.
_AT_FIRST_CALL = {
    "infill": "llama_sampler_init_infill",
    "grammar": "llama_sampler_init_grammar_lazy_patterns",
}

# How long a library may take to load and to be tried.
_PATIENCE = 120


@dataclass
class Found:
    """One llama.cpp."""

    path: Path
    version: Optional[str] = None
    """Its release, where it tells one."""
    since: Optional[int] = None
    """It is this build or a later one, by what it exports."""
    build_id: Optional[str] = None
    profile: Optional[str] = None
    """How it computes, where builds differ, as LLAMA_SIEVE_PROFILE takes it."""
    kinds: Dict[str, str] = field(default_factory=dict)
    """Each kind of sampler: "" where ours would be made, else why not."""
    at_first_call: List[str] = field(default_factory=list)
    """Kinds among these that are compared, with the program's vocabulary, when it asks for one."""
    problem: Optional[str] = None
    """Why none of it could be tried."""
    callers: List[Path] = field(default_factory=list)
    """Other files that call its constructors through the linker: where LD_PRELOAD reaches."""


@dataclass
class Report:
    """What the doctor found."""

    subject: str
    hosts: List[Found] = field(default_factory=list)
    remarks: List[str] = field(default_factory=list)

    @property
    def helps(self) -> bool:
        """Whether any sampler would be ours."""
        return any(reason == "" for host in self.hosts for reason in host.kinds.values())


def _probe(path: Path, *what: str) -> Dict[str, Any]:
    command = [sys.executable, "-m", "llama_sieve._probe", str(path), *what]
    # Without our own preload library, and with this very package.
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    package = str(Path(__file__).resolve().parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join(
        [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"it was not loaded and tried within {_PATIENCE} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return {"problem": lines[-1] if lines else f"loading it ended with {done.returncode}"}
    answer: Dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def examine(elf: _elf.Elf, loaded: Iterable[_elf.Elf] = ()) -> Found:
    """What a library that is a llama.cpp is, and what of ours would do in it."""
    since = next((build for name, build in _SIGNS if name in elf.exports), None)
    found = Found(elf.path, since=since, build_id=elf.build_id)
    for other in loaded:
        calls = any(name.startswith("llama_sampler_init_") for name in other.imports)
        if calls and other.path != elf.path and not _OURS & other.exports:
            found.callers.append(other.path)
    if _TAKES_OTHERS not in elf.exports:
        found.problem = "it is older than b4662, the first that takes samplers of others"
        return found
    answer = _probe(elf.path)
    found.problem = answer.get("problem")
    found.version = answer.get("version")
    found.profile = answer.get("profile")
    found.kinds = answer.get("kinds", {})
    if not found.kinds:
        return found
    if not answer.get("known_build"):
        for kind, builds in _LISTS.items():
            if found.kinds[kind]:
                found.kinds[kind] = _by_lists(elf.path, kind, builds)
    for kind, constructor in _AT_FIRST_CALL.items():
        has_it = constructor in elf.exports
        found.kinds[kind] = "" if has_it else f"it exports no {constructor}"
        found.at_first_call += [kind] if has_it else []
    return found


def _by_lists(path: Path, kind: str, builds: Iterable[int]) -> str:
    """Tries each known argument list in a process of its own: "" if one is the library's."""
    reasons = []
    for build in builds:
        answer = _probe(path, kind, str(build))
        reason = str(answer.get("reason", answer.get("problem")))
        if not reason:
            return ""
        reasons.append(f"as in b{build}: {reason}")
    return "its calls have none of the argument lists that are known (" + "; ".join(reasons) + ")"


def _read(paths: Iterable[Path]) -> List[_elf.Elf]:
    elves = []
    for path in paths:
        try:
            elves.append(_elf.read(path))
        except (OSError, _elf.NotElf):
            continue
    return elves


def of_pid(pid: int) -> Report:
    """A running process. OSError where it may not be looked at."""
    report = Report(f"process {pid}")
    program = Path(os.readlink(f"/proc/{pid}/exe"))
    report.subject += f" ({program})"
    paths: Dict[str, None] = {}
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
        mapped = line.split(None, 5)
        if len(mapped) == 6 and mapped[5].startswith("/") and "x" in mapped[1]:
            paths[mapped[5]] = None
    elves = _read(map(Path, paths))
    ours = any(_PRELOAD_MARK in elf.exports for elf in elves)
    report.remarks.append(
        "The preload library is in the process." if ours else "The preload library is not in it."
    )
    _describe(report, elves, program)
    return report


def of_program(path: Path) -> Report:
    """A program that could be run."""
    report = Report(f"program {path}")
    reason = launch.out_of_reach(path)
    if reason is not None:
        report.remarks.append(f"LD_PRELOAD does not reach it: {reason}.")
    elves = _read([path, *_loaded_at_start(path)])
    _describe(report, elves, path)
    return report


def of_library(path: Path) -> Report:
    """A library."""
    report = Report(f"library {path}")
    _describe(report, _read([path, *_loaded_at_start(path)]), path)
    return report


def _loaded_at_start(path: Path) -> List[Path]:
    """What the dynamic linker would load with it, without running it."""
    linker = _elf.read(path).interpreter or _elf.read(Path(sys.executable).resolve()).interpreter
    if linker is None:
        return []
    listed = subprocess.run(
        [linker, "--list", str(path)], capture_output=True, text=True, check=False, env={}
    )
    return [Path(name) for name in re.findall(r"=> (/\S+) \(", listed.stdout)]


def _describe(report: Report, elves: List[_elf.Elf], program: Path) -> None:
    hosts = [elf for elf in elves if _MARK in elf.exports and _PRELOAD_MARK not in elf.exports]
    for elf in hosts:
        if elf.interpreter is not None and elf.path == program:
            report.remarks.append(
                f"llama.cpp is linked into {elf.path} itself, where LD_PRELOAD does not reach."
            )
            continue
        found = examine(elf, elves)
        report.hosts.append(found)
        if not found.callers:
            report.remarks.append(
                f"Nothing here calls the constructors of {elf.path} through the linker: only "
                "callers that are loaded later are reached by LD_PRELOAD. Python's ctypes never "
                "is: use llama_sieve.patch()."
            )
    if not hosts:
        report.remarks.append(
            "No llama.cpp here that exports its functions. A library that is loaded later is seen "
            "by the process's number; one that is linked in statically cannot be replaced."
        )


def of_python() -> Report:
    """This Python: llama-cpp-python, if it has one."""
    report = Report(f"{sys.executable}")
    spec = util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        report.remarks.append(
            "llama-cpp-python is not installed here (pip install llama-cpp-python). Name another "
            "llama.cpp by a library's path, a program's, or a process's number."
        )
        return report
    try:
        import llama_cpp  # type: ignore[import-not-found,import-untyped,unused-ignore]

        from .patching import patch
    except Exception as error:
        report.remarks.append(f"llama-cpp-python cannot be imported: {error}")
        return report
    name = getattr(llama_cpp, "__version__", "of unknown version")
    library = Path(llama_cpp.llama_cpp._lib._name).resolve()
    elf = _elf.read(library)
    since = next((build for sign, build in _SIGNS if sign in elf.exports), None)
    found = Found(library, since=since, build_id=elf.build_id)
    report.hosts.append(found)
    report.remarks.append(f"llama-cpp-python {name}: what llama_sieve.patch() would do.")
    try:
        with patch(verbose=False) as made:
            found.kinds = {status.kind: status.reason for status in made.status()}
    except Exception as error:
        found.problem = str(error)
    return report


def of(subject: Optional[str]) -> Report:
    """The report of what a user names: a process, a file, or a program; None: this Python.

    ValueError where it is none of these.
    """
    if subject is None:
        return of_python()
    if subject.isdigit() and Path(f"/proc/{subject}").is_dir():
        return of_pid(int(subject))
    name = subject if os.sep in subject or Path(subject).is_file() else shutil.which(subject)
    if name is None or not Path(name).is_file():
        raise ValueError(f"{subject}: no process, library or program")
    path = Path(name).resolve()
    elf = _elf.read(path)
    return of_program(path) if elf.interpreter is not None else of_library(path)


def text(report: Report) -> str:
    """The report in words."""
    lines = [f"llama-sieve {version()}, {simd()}", f"looked at {report.subject}"]
    for found in report.hosts:
        lines += ["", f"llama.cpp: {found.path}"]
        if found.version is not None:
            lines.append(f"  version: {found.version}")
        elif found.since is not None:
            lines.append(f"  version: not told; b{found.since} or later by what it exports")
        if found.build_id is not None:
            lines.append(f"  build id: {found.build_id}")
        if found.profile:
            lines.append(f"  computes with: {found.profile}")
        lines += [f"  called through the linker by: {path}" for path in found.callers]
        if found.problem is not None:
            lines.append(f"  not tried: {found.problem}")
        later = found.at_first_call
        ours = [kind for kind, reason in found.kinds.items() if not reason and kind not in later]
        if ours:
            lines.append(f"  ours: {', '.join(ours)}")
        if found.at_first_call:
            names = ", ".join(found.at_first_call)
            lines.append(f"  compared at the first call, with the program's vocabulary: {names}")
        lines += [f"  its own: {kind}: {why}" for kind, why in found.kinds.items() if why]
    if report.remarks:
        lines += ["", *report.remarks]
    return "\n".join(lines)
