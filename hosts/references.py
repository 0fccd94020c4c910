#!/usr/bin/env python3
"""Compares other libraries' samplers with ours: `hosts/references.py [--arrays FILE] [--textgen
FOLDER]`.

Our own test writes 1,000 random arrays for each sampler, with our results; --arrays takes a file
that it has written before. The samplers of transformers (epsilon, eta) and text-generation-webui
(top-a, quadratic) then run on these arrays in double precision. A cut must keep the same tokens;
quadratic must give the same logits, within three times the error in docs/sampling.md. The Python
that runs this script needs torch and transformers. --textgen is a checkout of
text-generation-webui, which is cloned otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import common

TEXTGEN = "https://github.com/oobabooga/text-generation-webui"
TEST = "cuts::arrays_for_other_libraries"
ARRAYS = 1000
ERROR = 5e-7
"""The error bound of quadratic, relative to its largest term."""

Line = Dict[str, Any]
Reference = Callable[[List[float], Any], Any]


def needed(name: str) -> Any:
    """Imports a package. Raises SystemExit(UNREACHED) if this Python does not have it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"cannot be had: {name} ({error}): pip install torch transformers", file=sys.stderr)
        raise SystemExit(common.UNREACHED) from error


def drawn(folder: Path) -> Path:
    """Runs our test and returns the file that it wrote."""
    path = folder / "arrays.jsonl"
    command = ["cargo", "test", "--release", "--test", "samplers", TEST, "--", "--ignored"]
    environment = {**os.environ, "LLAMA_SIEVE_TEST_DRAWN": str(path)}
    subprocess.run(command, check=True, cwd=common.REPOSITORY, env=environment)
    return path


def textgen(folder: Optional[Path], kept: Path) -> Any:
    """Imports the samplers of text-generation-webui without the rest of its program."""
    if folder is None:
        folder = kept / "text-generation-webui"
        if not folder.exists():
            common.download(["git", "clone", "--quiet", "--depth", "1", TEXTGEN, folder])
    for name in ("modules", "modules.shared", "modules.logging_colors", "modules.torch_utils"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["modules"])["shared"] = sys.modules["modules.shared"]
    vars(sys.modules["modules.logging_colors"])["logger"] = None
    vars(sys.modules["modules.torch_utils"])["get_device"] = lambda: "cpu"
    place = folder / "modules" / "sampler_hijack.py"
    spec = importlib.util.spec_from_file_location("sampler_hijack", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def references(theirs: Any) -> Dict[str, Reference]:
    """Returns the other libraries' samplers, by the names of ours."""
    process = needed("transformers.generation.logits_process")
    made: Dict[str, Callable[..., Any]] = {
        "epsilon-cutoff": process.EpsilonLogitsWarper,
        "eta-cutoff": process.EtaLogitsWarper,
        "top-a": theirs.TopALogitsWarper,
        "quadratic": theirs.QuadraticSamplingLogitsWarper,
    }
    return {
        name: lambda parameters, scores, make=make: make(*parameters)(None, scores)  # type: ignore
        for name, make in made.items()
    }


def difference(line: Line, left: List[float]) -> Optional[str]:
    """Describes how their logits differ from our result; None if they do not."""
    if line["sampler"] == "quadratic":
        return bent_otherwise(line, left)
    kept = [place for place, logit in enumerate(left) if logit != float("-inf")]
    if kept == sorted(line["kept"]):
        return None
    return f"they keep {len(kept)}, ours {len(line['kept'])}"


def bent_otherwise(line: Line, left: List[float]) -> Optional[str]:
    """Describes how their logits after quadratic differ from ours; None if they do not."""
    factor, curve = line["parameters"]
    largest = max(line["logits"])
    for logit, ours, others in zip(line["logits"], line["left"], left):
        if logit == float("-inf"):
            if ours != logit or others != logit:
                return f"a masked token has {ours}, theirs {others}"
            continue
        distance = abs(logit - largest)
        square = factor * abs(3 - curve) / 2 * distance**2
        cube = factor * abs(curve - 1) / 2 * distance**3
        terms = max(abs(largest), square, cube)
        if terms < 1e37 and abs(ours - others) > 3 * ERROR * terms:
            return f"{logit} becomes {ours}, theirs {others}"
    return None


def compare(path: Path, theirs: Any) -> bool:
    """Prints for each sampler how many arrays have equal results. True if all have."""
    torch = needed("torch")
    torch.set_default_dtype(torch.float64)
    makers = references(theirs)
    equal: Counter[str] = Counter()
    wrong: List[str] = []
    with path.open(encoding="utf-8") as file:
        for text in file:
            line: Line = json.loads(text)
            name = line["sampler"]
            scores = torch.tensor([line["logits"]], dtype=torch.float64)
            left = makers[name](line["parameters"], scores)[0].tolist()
            found = difference(line, left)
            if found is None:
                equal[name] += 1
            else:
                wrong.append(f"{name}{line['parameters']}: {found}")
    for name in makers:
        print(f"{name}: {equal[name]} of {ARRAYS} equal")
    print("\n".join(wrong[:20]), file=sys.stderr)
    return not wrong and all(equal[name] == ARRAYS for name in makers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=Path, help="the file that our test has written")
    parser.add_argument("--textgen", type=Path, help="a checkout of text-generation-webui")
    parser.add_argument("--folder", type=Path, help="where downloads are kept")
    arguments = parser.parse_args()
    with common.folder(arguments.folder) as folder:
        theirs = textgen(arguments.textgen, folder)
        path = arguments.arrays or drawn(folder)
        raise SystemExit(0 if compare(path, theirs) else 1)


if __name__ == "__main__":
    main()
