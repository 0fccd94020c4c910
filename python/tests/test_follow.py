"""Tests the page that is served while a trace is written: what it sends, and to whom."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from test_trace import SEQUENCE, START, token

from llama_sieve import _follow, _trace
from llama_sieve.__main__ import main


def text_of(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(text_of([START, SEQUENCE, token("a")]))
    return path


@pytest.fixture
def server(path):
    with _follow.Server([str(path)]) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path, headers=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def raw(server, request):
    """Sends bytes, and returns the first line of the answer."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=300) as connection:
        # The server may answer, and close, before it has read all of a long one.
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        return connection.makefile("rb").readline()


def lines_of(server, place="from=0&of="):
    status, headers, body = ask(server, f"/{server.word}/lines?run=0&{place}")
    assert status == 200
    offset, _, record = headers["Llama-Sieve-Next"].partition(" ")
    return body.decode(), f"from={offset}&of={record}"


def test_lines_come_as_they_are_written_and_a_half_one_waits(server, path):
    text, place = lines_of(server)
    assert text == path.read_text()
    assert lines_of(server, place) == ("", place)
    more = text_of([token("b", 1), token("\u65e5", 2)])
    with path.open("a") as file:
        file.write(more[:-40])
        file.flush()
        first, place = lines_of(server, place)
        file.write(more[-40:])
    second, place = lines_of(server, place)
    assert first + second == more
    assert first.endswith("\n") and first.count("\n") == 1


def test_another_record_in_the_file_is_begun_anew(server, path):
    _, place = lines_of(server)
    longer = text_of([dict(START, started=1), SEQUENCE, *(token("x", i) for i in range(9))])
    for text in (text_of([START]), longer, None):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        status, _, _ = ask(server, f"/{server.word}/lines?run=0&{place}")
        assert status == 410
    # Without a file there are no lines yet.
    assert lines_of(server) == ("", "from=0&of=")


def test_a_long_line_comes_whole(server, path, monkeypatch):
    monkeypatch.setattr(_follow, "MOST", 64)
    expected, place, text = path.read_text(), "from=0&of=", ""
    while len(text) < len(expected):
        more, place = lines_of(server, place)
        assert more
        text += more
    assert text == expected


def test_what_is_no_trace_is_told(server, path):
    for text, word in [(text_of([dict(START, version=0)]), "version 0"), ("x\n", "no trace")]:
        path.write_text(text)
        status, _, body = ask(server, f"/{server.word}/lines?run=0&from=0&of=")
        assert status == 422 and word in body.decode()
    path.unlink()
    os.mkfifo(path)
    status, _, body = ask(server, f"/{server.word}/lines?run=0&from=0&of=")
    assert status == 422 and b"no file" in body


def test_the_page_may_ask_its_own_server_alone(server):
    status, headers, body = ask(server, f"/{server.word}/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; connect-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert policy.split("; frame-ancestors")[0] in body.decode()
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    # The page that is written to a file requests nothing.
    assert "connect-src" not in _trace.page(server.paths)


def test_nobody_without_the_word_gets_anything(server, path):
    word = server.word
    assert len(word) >= 32
    others = ["/", "/favicon.ico", f"/{word}", f"/{word[:-1]}/", f"/{word}x/", f"/{word.upper()}/"]
    others += [f"/{word[:-1]}/lines?run=0&from=0&of=", "/../" + word, f"/{word}/x", f"/{word}/?a"]
    others += [f"/{word}/../../etc/passwd", f"/{word}/lines/", "*"]
    for other in others:
        status, _, body = ask(server, other)
        assert (status, body) == (404, b""), other
    assert ask(server, f"/{word}/")[0] == 200


def test_a_request_that_is_not_the_pages_own_is_refused(server):
    port, page = server.server_port, f"/{server.word}/"
    own = f"127.0.0.1:{port}"
    for headers in [
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"localhost:{port}"},
        {"Host": f"127.0.0.1:{port + 1}"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]:
        assert ask(server, page, headers)[::2] == (403, b""), headers
    for headers in [{"Origin": f"http://{own}"}, {"Sec-Fetch-Site": "same-origin"}]:
        assert ask(server, page, headers)[0] == 200, headers
    line = f"GET {page} HTTP/1.1\r\n".encode()
    assert b" 403 " in raw(server, line + b"\r\n")
    twice = f"Host: {own}\r\nHost: evil.example\r\n\r\n".encode()
    assert b" 403 " in raw(server, line + twice)


def test_nothing_but_get_is_answered(server):
    page = f"/{server.word}/"
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "X"):
        status, headers, body = ask(server, page, method=method)
        assert (status, body) == (405, b""), method
        assert "Access-Control-Allow-Origin" not in headers
    for request in (b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        assert b" 200 " not in raw(server, request)
    long = b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"
    assert b" 414 " in raw(server, long)


def test_a_place_that_is_none_is_refused(server):
    for query in (
        "",
        "run=0",
        "run=0&from=-1&of=",
        "run=1&from=0&of=",
        "run=x&from=0&of=",
        "run=0&from=1e9&of=",
        "run=0&from=99999999999999999999&of=",
        "run=%C2%B2&from=0&of=",
    ):
        status, _, body = ask(server, f"/{server.word}/lines?{query}")
        assert (status, body) == (400, b""), query


def test_a_client_that_says_nothing_holds_nobody_up(server):
    idle = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(8)]
    assert ask(server, f"/{server.word}/")[0] == 200
    for connection in idle:
        connection.close()


def test_it_listens_on_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    name = f"/proc/{os.getpid()}/net/tcp"
    wanted = f"0100007F:{server.server_port:04X}"
    with open(name) as file:
        places = [line.split()[1] for line in file.readlines()[1:]]
    assert wanted in places and f"00000000:{server.server_port:04X}" not in places


def test_the_command_prints_the_address_and_ends_when_interrupted(path, capsys):
    command = [sys.executable, "-m", "llama_sieve", "trace", "--follow", str(path)]
    # Tests that run in the background ignore the signal, and so would the command.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and address.endswith("/")
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
    assert main(["trace", "--follow", str(path), "--output", "x"]) == 2
    assert "--output" in capsys.readouterr().err
    path.write_text("x\n")
    assert main(["trace", "--follow", str(path)]) == 2
    assert "no trace" in capsys.readouterr().err
