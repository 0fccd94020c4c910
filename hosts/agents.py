#!/usr/bin/env python3
"""Chats as agents send them, with and without the preload library: `hosts/agents.py [--quick]`.

Runs llama-server with the chat templates of its own source: thinking on, off and with a budget;
tools as npm packages publish them; answers that satisfy a JSON schema; one, four and 32 answers at
once; streamed and not. The model follows a script of thoughts, tool calls and answers in the
template's format (`scripted.py`). Some noise is added, so that triggers fire, grammars reject
tokens and budgets force them.

All arms are the same binary with the same requests: first the host, then ours, then the host again.
That last run is the control: if its text differs from the first, the host does not reproduce its
own text, and the comparison says nothing about ours. Several answers at once belong to one request
(`n`), so that batches are the same: the last bits of logits depend on what else is in a batch.

`--trace` runs ours once more with a trace; the texts must be the same.

`--quick` checks texts only: each template once, with few tokens and the shortest lists of tools. It
runs the control only where texts differ. `--templates` takes names, or `all` for every template.

Whether a tool is called, and whether the server can parse an answer, is left to chance. An answer
that the server cannot parse is an error of the request ("failed"). It is then requested again as a
stream, so that the texts of both arms can still be compared.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import common
import llama_server
import scripted
import tools as published

TEMPLATES = (
    "Qwen-Qwen3-0.6B",
    "Qwen3.5-4B",
    "openai-gpt-oss-120b",
    "deepseek-ai-DeepSeek-V3.1",
    "moonshotai-Kimi-K2",
    "GLM-4.6",
    "MiniMax-M2",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "meta-llama-Llama-3.1-8B-Instruct",
)
SLOTS = (1, 4, 32)

# Each word occurs once, so that it has one successor. Only "maybe" repeats, and can loop.
_THOUGHT = (
    "The user wants me to look at some notes, maybe because they forgot what was written there. "
    "First I must open them with one tool call, giving its full path; then read every line, maybe "
    "count how many topics appear, before reporting back. Nothing else seems necessary here now"
    ".\n"
)
_PLAIN = "Here you are: twelve short remarks about gardens, trees, rain, and birds."
_QUESTION = "What is in the file notes.txt? Read it and tell me."
_RESULT = "[what the tool has found]"
_SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 60},
        "kind": {"enum": ["note", "letter", "list"]},
        "lines": {"type": "integer", "minimum": 0},
        "topics": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 6},
        "is_complete": {"type": "boolean"},
    },
    "required": ["title", "kind", "lines", "topics", "is_complete"],
    "additionalProperties": False,
}
_ANSWER = {
    "title": "What is in the file",
    "kind": "note",
    "lines": 12,
    "topics": ["the folder", "the tool", "a name"],
    "is_complete": True,
}

# Nested repetition counts, which llama.cpp refuses ("failed to parse grammar").
_COUNTED = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "maxItems": 500,
            "items": {"type": "array", "maxItems": 50, "items": {"enum": ["on", "off", "left"]}},
        },
        "name": {"type": "string", "minLength": 3000},
    },
    "required": ["rows"],
}
_COUNTING: Dict[str, object] = {
    "name": "write_rows",
    "description": "Writes rows of switches.",
    "parameters": _COUNTED,
}

# Texts that a template treats as one token each, and the part of them that are control tokens.
_MARK = re.compile(
    r"<[|｜][^<>\s'\"]{1,40}[|｜]>|<\|[a-z_]+>|<[a-z_]+\|>|</?(?:[a-z]+:)?[a-z_]{2,30}>"
    r"|\[/?[A-Z_]{3,20}\]|\[e~\[|\]~[a-z]+\]|\]~!b\["
)
_CONTROL = re.compile(r"[|｜~\[]")
# Tokens that models have although their templates do not mention them.
_MORE_MARKS = ("<|constrain|>", "<|return|>", "<|call|>")
_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|return|>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|endoftext|>",
    "<|eos|>",
)


@dataclass(frozen=True)
class Request:
    """A request, and how many answers it asks for at once."""

    name: str
    body: Dict[str, object]
    tools: Optional[str] = None
    """The name of the list of tools that is sent with it."""
    slots: Tuple[int, ...] = (1,)
    stream: bool = False


_BY_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"schema": _SCHEMA}}}
_NO_THOUGHTS = {"chat_template_kwargs": {"enable_thinking": False}}
_PROBABILITIES = {"logprobs": True, "top_logprobs": 5}
_BUDGET = {"thinking_budget_tokens": 24}

REQUESTS = (
    Request("chat", {}, slots=SLOTS),
    Request("tools", {}, "file system", SLOTS),
    Request("tools, streamed", {}, "file system", (1, 4), stream=True),
    Request("tools, no thoughts", _NO_THOUGHTS, "file system", (1, 4)),
    Request("tools, budget", _BUDGET, "file system", SLOTS),
    Request("tools, budget of 0", {"thinking_budget_tokens": 0}, "file system"),
    Request("a tool is required", {"tool_choice": "required"}, "file system", (1, 4)),
    Request("two calls at once", {"parallel_tool_calls": True}, "file system"),
    Request("budget", {**_BUDGET, "reasoning_budget_message": " Enough."}, slots=(1, 4)),
    Request("by schema", _BY_SCHEMA, slots=SLOTS),
    Request("by schema, no thoughts", {**_BY_SCHEMA, **_NO_THOUGHTS}),
    Request("by schema, budget, streamed", {**_BY_SCHEMA, **_BUDGET}, slots=(1, 4), stream=True),
    Request("tools of qwen-code", {}, "qwen-code", (1, 4)),
    Request("tools of firecrawl", {}, "firecrawl"),
    Request("tools of openclaw", {}, "openclaw"),
    # The settings that Qwen recommends for its models.
    Request(
        "tools, budget, penalties",
        {**_BUDGET, "presence_penalty": 1.5, "temperature": 0.6, "top_k": 20, "min_p": 0},
        "file system",
        (1, 4),
    ),
    Request("tools, budget, logprobs", {**_BUDGET, **_PROBABILITIES}, "file system"),
    Request("by schema, logprobs", {**_BY_SCHEMA, **_PROBABILITIES}, slots=(1, 4)),
    Request("tools with counts", {}, "counts"),
    Request("reasoning control", {"reasoning_control": True}),
)


@dataclass
class Answers:
    """The answers of one server."""

    texts: Dict[str, List[str]] = field(default_factory=dict)
    """The answers to each request, by its name. An error begins with "error: "."""
    n_tokens: int = 0
    n_chains: int = 0
    """The number of answers that were started, each with a chain of its own."""
    seconds: float = 0.0
    sampling: Optional[float] = None
    report: str = ""

    def _count(self, beginning: str) -> int:
        return sum(text.startswith(beginning) for texts in self.texts.values() for text in texts)

    @property
    def refused(self) -> int:
        """The number of refused requests, for example because llama.cpp rejects the grammar."""
        return self._count("error: 400")

    @property
    def failed(self) -> int:
        """The number of errors, for example because the text does not fit the template."""
        return self._count("error: ") - self.refused

    @property
    def n(self) -> int:
        return sum(len(texts) for texts in self.texts.values())

    @property
    def calls(self) -> int:
        """The number of answers that call a tool."""
        return sum('"tool_calls": [{' in text for texts in self.texts.values() for text in texts)


class Server:
    """A running llama-server."""

    def __init__(
        self,
        command: Sequence[object],
        log: Path,
        preloaded: Optional[Path] = None,
        **environment: str,
    ) -> None:
        variables = {**os.environ, "LLAMA_SIEVE_VERBOSE": "1", **environment}
        variables.pop("LD_PRELOAD", None)
        if preloaded is not None:
            variables["LD_PRELOAD"] = str(preloaded)
        self.port = llama_server.free_port()
        self.log = log
        line = [*map(str, command), "--port", str(self.port)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(line, env=variables, stdout=out, stderr=out)

    def __enter__(self) -> "Server":
        try:
            llama_server.wait_for(self.port, self.process)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()

    def post(self, path: str, body: Dict[str, object]) -> Tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=900)
        try:
            content = json.dumps(body)
            connection.request("POST", path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, f"{type(error).__name__}: {error}; the server: {self.process.poll()}"
        finally:
            connection.close()

    def must(self, path: str, body: Dict[str, object]) -> Dict[str, object]:
        status, text = self.post(path, body)
        if status != 200:
            raise RuntimeError(f"{path}: {status}: {text[:300]}")
        return dict(json.loads(text))


def _fixed(message: Dict[str, object]) -> str:
    """Returns a message as JSON, without the random ids of its tool calls."""
    for call in message.get("tool_calls") or []:  # type: ignore[attr-defined]
        call.pop("id", None)
    return json.dumps(message, ensure_ascii=False, sort_keys=True)


def _of_stream(text: str) -> Tuple[List[str], int]:
    """Returns the messages of a stream, followed by its errors, and how many tokens they have."""
    messages: Dict[int, Dict[str, object]] = {}
    n_tokens = 0
    errors = []
    for line in text.splitlines():
        if line.startswith("error: "):
            errors.append(line)
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[len("data: ") :])
        if "error" in event:
            errors.append(f"error: {event['error']}")
        n_tokens = (event.get("usage") or {}).get("completion_tokens", n_tokens)
        for choice in event.get("choices", []):
            message = messages.setdefault(choice["index"], {})
            message["finish_reason"] = choice.get("finish_reason") or message.get("finish_reason")
            _add(message, choice["delta"])
    return [*(_fixed(messages[index]) for index in sorted(messages)), *errors], n_tokens


def _add(message: Dict[str, object], delta: Dict[str, object]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            calls: List[Dict[str, object]] = message.setdefault(name, [])  # type: ignore
            for part in value:  # type: ignore[attr-defined]
                while len(calls) <= part["index"]:
                    calls.append({"name": "", "arguments": ""})
                for key, text in part.get("function", {}).items():
                    calls[part["index"]][key] += text or ""  # type: ignore[operator]
        elif isinstance(value, str) and name != "role":
            message[name] = str(message.get(name) or "") + value


def _of_answer(status: int, text: str) -> Tuple[List[str], int]:
    """Returns the messages of an answer, and how many tokens they have."""
    if status != 200:
        return [f"error: {status}: {text[:400]}"], 0
    answer = json.loads(text)
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    more = ("finish_reason", "logprobs")
    messages = [
        _fixed({**choice["message"], **{name: choice[name] for name in more if name in choice}})
        for choice in choices
    ]
    return messages, answer["usage"]["completion_tokens"]


@dataclass
class Scripted:
    """A template, and a model that answers in its format."""

    name: str
    template: Path
    model: Path


def marks_of(template: str) -> Dict[str, bool]:
    """Returns the texts that a template treats as one token; true marks a control token."""
    found = dict.fromkeys([*_MARK.findall(template), *_MORE_MARKS])
    return {text: bool(_CONTROL.search(text)) for text in found}


def scripted_model(
    program: Path, template: Path, folder: Path, n_context: int, tools: List[Dict[str, object]]
) -> Scripted:
    """Writes the model for a template."""
    source = template.read_text(encoding="utf-8")
    marks = marks_of(source)
    end = next((text for text in _ENDS if text in source), "<|eot_id|>")
    path = folder / "scripted.gguf"
    # First only its vocabulary counts: a server renders and tokenises the script with it.
    scripted.write(path, folder, marks, end, [(0, 1)], [0], n_context)
    made = Scripted(template.stem, template, path)
    with Server(server_command(program, made, 1, 8192), folder / "script.log") as server:
        lines = _script(server, source, end, tools)
    follows = [pair for line in lines for pair in zip(line, line[1:])]
    longest = max(lines, key=len)
    entries = sorted(set(longest[:: max(1, len(longest) // 12)]))
    scripted.write(path, folder, marks, end, follows, entries, n_context)
    return made


def server_command(program: Path, made: Scripted, slots: int, context: int) -> List[object]:
    """Returns the command that starts a server."""
    command: List[object] = [program, "-m", made.model, "-np", slots, "-c", context]
    command += ["-t", 1, "-tb", 1, "-b", 512, "--no-warmup", "-fit", "off", "--jinja"]
    return [*command, "--chat-template-file", made.template]


def _script(
    server: Server, template: str, end: str, tools: List[Dict[str, object]]
) -> List[List[int]]:
    """Returns the lines of the script, as tokens: a tool call and answers, each after a thought."""
    question = {"role": "user", "content": _QUESTION}
    begun = _rendered(server, [question], tools) or _rendered(server, [question], [])
    assert begun is not None
    function: Dict[str, object] = tools[0]["function"]  # type: ignore[assignment]
    arguments = _arguments(function["parameters"])  # type: ignore[arg-type]
    called = {"name": function["name"], "arguments": json.dumps(arguments)}
    call = {"id": "call00001", "type": "function", "function": called}
    thinking = {"role": "assistant", "content": "", "reasoning_content": _THOUGHT}
    answer = json.dumps(_ANSWER)
    conversations = (
        [
            question,
            {**thinking, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call00001", "content": _RESULT},
        ],
        [question, {**thinking, "content": answer}, {"role": "user", "content": _RESULT}],
        [question, {**thinking, "content": _PLAIN}, {"role": "user", "content": _RESULT}],
    )
    close = re.search(r"</(?:mm:)?think>|\[/THINK\]", template)
    lines = []
    for messages in conversations:
        whole = _rendered(server, messages, tools) or _rendered(server, messages, [])
        if whole is None:
            continue
        same = os.path.commonprefix([begun, whole])
        said = whole[len(same) :].split(_RESULT)[0]
        # The model writes nothing after its end token.
        ended = re.search("|".join(map(re.escape, (*_ENDS, "<|call|>"))), said)
        content = str(messages[1]["content"])
        if ended is not None:
            said = said[: ended.end()]
        elif content:
            said = said[: said.rfind(content) + len(content)] + end
        if close is not None:
            open_ = close[0].replace("/", "")
            thought = rf"^\s*(?:{re.escape(open_)})?.*?{re.escape(close[0])}\s*"
            is_open = begun.rstrip().endswith(open_)
            rest = re.sub(thought, "", said, count=1, flags=re.DOTALL)
            said = f"{'' if is_open else open_}{_THOUGHT}{close[0]}\n\n{rest}"
        line = _tokens(server, begun)[-1:] + _tokens(server, said)
        # Repeated, calls become the likeliest. With a schema the grammar rejects them.
        lines += [line] * (4 if "tool_calls" in messages[1] else 1)
    lines.append(_tokens(server, answer))
    return lines


def _rendered(
    server: Server, messages: List[Dict[str, object]], tools: List[Dict[str, object]]
) -> Optional[str]:
    body: Dict[str, object] = {"messages": messages}
    if tools:
        body["tools"] = tools
    status, text = server.post("/apply-template", body)
    return str(json.loads(text)["prompt"]) if status == 200 else None


def _tokens(server: Server, text: str) -> List[int]:
    body: Dict[str, object] = {"content": text, "parse_special": True, "add_special": False}
    return list(server.must("/tokenize", body)["tokens"])  # type: ignore[call-overload]


def _arguments(schema: Dict[str, object]) -> Dict[str, object]:
    """Returns arguments for a function that roughly match its schema."""
    properties: Dict[str, Dict[str, object]] = schema.get("properties", {})  # type: ignore
    values = {"integer": 12, "number": 1.5, "boolean": True, "array": ["notes.txt"], "object": {}}
    return {
        name: values.get(str(one.get("type")), "/home/user/notes.txt")
        for name, one in properties.items()
    }


def answers(
    server: Server, requests: Sequence[Request], slots: int, options: argparse.Namespace
) -> Answers:
    """Sends the requests to a server and returns its answers."""
    found = Answers()
    for request in requests:
        body: Dict[str, object] = {
            "messages": [
                {"role": "system", "content": "You help with files."},
                {"role": "user", "content": _QUESTION},
            ],
            "seed": 1000 + 100 * REQUESTS.index(request),
            "max_tokens": options.tokens,
            "n": slots,
            "cache_prompt": False,
            **request.body,
        }
        if request.tools is not None:
            body["tools"] = options.tools[request.tools]
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        begin = time.monotonic()
        if request.stream:
            messages, n_tokens = _of_stream(server.post("/v1/chat/completions", streamed)[1])
        else:
            messages, n_tokens = _of_answer(*server.post("/v1/chat/completions", body))
        found.seconds += time.monotonic() - begin
        found.n_chains += slots
        if messages and messages[0].startswith("error: 500"):
            # The server withholds a text that it cannot parse, but streams it up to that point.
            messages += _of_stream(server.post("/v1/chat/completions", streamed)[1])[0]
            found.n_chains += slots
        found.texts[request.name] = messages
        found.n_tokens += n_tokens
    if options.timings:
        # The server prints its means at most every five seconds, at the next token.
        time.sleep(5.1)
        server.post("/completion", {"prompt": "a", "n_predict": 2})
    return found


@dataclass
class Row:
    """Some requests with one template, answered by all arms."""

    template: str
    requests: Sequence[Request]
    slots: int
    host: Answers
    ours: Answers
    control: Optional[Answers]
    large: Optional[Answers]
    traced: Optional[Answers] = None
    """Ours with a trace."""

    @property
    def different(self) -> List[str]:
        of_trace = _different(self.host, self.traced) if self.traced is not None else []
        return list(dict.fromkeys([*_different(self.host, self.ours), *of_trace]))

    @property
    def unsteady(self) -> List[str]:
        """The requests whose texts the host itself does not reproduce."""
        return _different(self.host, self.control) if self.control is not None else []

    @property
    def good(self) -> bool:
        return not set(self.different) - set(self.unsteady) and self.is_direct

    @property
    def is_direct(self) -> bool:
        """True if all tokens came straight from the logits except those that are compared.

        The library compares the first of each chain, one in 256, and up to three per process.
        """
        counts = _COUNTS.search(self.ours.report)
        if counts is None:
            return self.ours.n_tokens == 0
        direct_, sampled = int(counts[1]), int(counts[2])
        return sampled - direct_ <= self.ours.n_chains + sampled // 256 + 3

    def markdown(self) -> str:
        names = ", ".join(one.name for one in self.requests) if len(self.requests) < 3 else "all"
        same = "yes" if not self.different else "NO: " + "; ".join(self.different)
        control = "not run" if self.control is None else "yes"
        if self.unsteady:
            control = "NO: " + "; ".join(self.unsteady)
        # For several answers to one request the server counts only the tokens of the first.
        counts = _COUNTS.search(self.ours.report)
        n_tokens = int(counts[2]) if counts else self.host.n_tokens
        rates = [n_tokens / max(one.seconds, 1e-9) for one in (self.host, self.ours)]
        refused = str(self.host.refused)
        if self.large is not None:
            refused += f", {self.large.refused} with large-grammars"
        cells = [self.template, names, self.slots, same, control]
        cells += [f"{self.host.calls} of {self.host.n}", refused, self.host.failed]
        cells += [direct(self.ours.report)]
        cells += [f"{rates[0]:.0f}", f"{rates[1]:.0f}", f"{rates[1] / max(rates[0], 1e-9):.2f}"]
        if self.host.sampling is not None and self.ours.sampling is not None:
            cells += [f"{self.host.sampling:.0f}", f"{self.ours.sampling:.0f}"]
        return f"| {' | '.join(map(str, cells))} |"


def _different(a: Answers, b: Answers) -> List[str]:
    return [name for name in a.texts if a.texts[name] != b.texts.get(name)]


_COUNTS = re.compile(r"llama-sieve: preload library: (\d+) of (\d+) tokens were sampled straight")


def direct(report: str) -> str:
    """Returns how many tokens came straight from the logits, as the library reports it."""
    counts = _COUNTS.search(report)
    return f"{counts[1]} of {counts[2]}" if counts else "not told"


def row(
    made: Scripted, requests: Sequence[Request], slots: int, options: argparse.Namespace
) -> Row:
    """Runs the requests in all arms."""
    longest = max(options.prompts[request.tools] for request in requests)
    context = slots * (longest + options.tokens + 256)
    command = server_command(options.server, made, slots, context)

    def arm(name: str, preloaded: Optional[Path], **environment: str) -> Answers:
        log = options.logs / f"agents-{name}.log"
        with Server(command, log, preloaded, **environment) as server:
            found = answers(server, requests, slots, options)
        found.report = log.read_text(errors="replace")
        told = re.findall(r"avg t_sampl\s*=\s*([0-9.]+) ms", found.report)
        found.sampling = 1000 * float(told[-1]) if told and options.timings else None
        return found

    host, ours = arm("host", None), arm("ours", options.preload)
    traced = None
    if common.recording is not None:
        with common.recording():
            traced = arm("traced", options.preload)
    control = None
    if not options.quick or any(_different(host, one) for one in (ours, traced or ours)):
        control = arm("control", None)
    large = None
    if host.refused:
        large = arm("large", options.preload, LLAMA_SIEVE_PRELOAD="large-grammars")
    return Row(made.name, requests, slots, host, ours, control, large, traced)


HEADER = """\
| template | request | at once | same text | control | tool calls | refused | failed | \
direct | tokens/s without | with | times |{}
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |{}"""


def rows(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yields a row for each template, number of slots and request; with --quick, one for all."""
    for template in options.templates:
        context = max(options.prompts.values()) + options.tokens + 256
        path = options.source / f"{template}.jinja"
        tools = options.tools["file system"]
        made = scripted_model(options.server, path, folder, context, tools)
        names = options.requests or [
            one.name
            for one in REQUESTS
            if not options.quick or one.tools in (None, "file system", "counts")
        ]
        wanted = [one for one in REQUESTS if one.name in names]
        for slots in options.slots:
            here = [one for one in wanted if slots in one.slots]
            for requests in [here] if options.quick and here else [[one] for one in here]:
                yield row(made, requests, slots, options)


def main() -> int:
    parser = common.options(__doc__)
    common.may_trace(parser)
    parser.add_argument("--quick", action="store_true", help="texts alone, few tokens")
    parser.add_argument("--templates", nargs="*", default=list(TEMPLATES), help="names, or all")
    parser.add_argument("--requests", nargs="*", help="names of requests (default all)")
    parser.add_argument("--slots", nargs="*", type=int, help=f"at once (default {SLOTS})")
    parser.add_argument("--tokens", type=int, help="of each answer at most")
    parser.add_argument("--timings", action="store_true", help="the server's own t_sampl, too")
    parser.add_argument("--server", type=Path, help="this llama-server, not one built here")
    parser.add_argument("--preload", type=Path, help="this preload library, not one built here")
    options = parser.parse_args()
    options.slots = options.slots or ([1] if options.quick else list(SLOTS))
    options.tokens = options.tokens or (80 if options.quick else 200)
    good = True
    with common.folder(options.folder) as folder, common.tracing(folder, options) as hold:
        options.logs = folder
        options.server = options.server or llama_server.built(folder, "llama-server")
        options.preload = options.preload or common.preload()
        options.source = llama_server.source(folder) / "models" / "templates"
        if options.templates == ["all"]:
            found = sorted(path.stem for path in options.source.glob("*.jinja"))
            options.templates = found
        options.tools = {name: published.tools(folder, name) for name in published.PUBLISHED}
        options.tools["counts"] = [{"type": "function", "function": _COUNTING}]
        # A token has about three bytes of JSON; allow for two, because templates add text.
        sizes = {name: len(json.dumps(one)) // 2 for name, one in options.tools.items()}
        options.prompts = {None: 1024, **{name: 2048 + size for name, size in sizes.items()}}
        more = (" µs to sample without | with |", " --- | --- |") if options.timings else ("", "")
        if not options.no_header:
            print(HEADER.format(*more))
        for template in list(options.templates):
            options.templates = [template]
            try:
                for one in rows(options, folder):
                    print(one.markdown(), flush=True)
                    good &= one.good
                    if not one.is_direct:
                        print(f"{one.template}: not direct", file=sys.stderr)
                    if not one.good:
                        _show_difference(one)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"| {template} | {str(error).replace('|', '/')[:300]} |", flush=True)
                good = False
        good &= hold()
    return 0 if good else 1


def _show_difference(found: Row) -> None:
    """Prints on stderr where the texts of two arms diverge."""
    arms = {"ours": found.ours, "recorded": found.traced or found.ours}
    for name, (arm, other) in itertools.product(found.different, arms.items()):
        for a, b in zip(found.host.texts[name], other.texts.get(name, [])):
            if a != b:
                at = len(os.path.commonprefix([a, b]))
                begin = max(0, at - 60)
                print(f"{found.template}, {name}: host {a[begin : at + 80]!r}", file=sys.stderr)
                print(f"{found.template}, {name}: {arm} {b[begin : at + 80]!r}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
