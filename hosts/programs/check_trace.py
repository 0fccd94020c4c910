"""Validates traces against their schema: `check_trace.py SCHEMA FILE...`.

Needs jsonschema-rs. Prints how many lines there are of each kind, as JSON.
"""

import collections
import json
import sys
from pathlib import Path

import jsonschema_rs


def main() -> None:
    schema, *paths = map(Path, sys.argv[1:])
    validator = jsonschema_rs.validator_for(json.loads(schema.read_text(encoding="utf-8")))
    kinds: "collections.Counter[str]" = collections.Counter()
    for path in paths:
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                sys.exit(f"{path}: line {number} is not whole")
            value = json.loads(line)
            for error in validator.iter_errors(value):
                sys.exit(f"{path}: line {number}: {error}")
            kinds[value["kind"]] += 1
    print(json.dumps(kinds))


if __name__ == "__main__":
    main()
