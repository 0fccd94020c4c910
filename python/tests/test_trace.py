"""Tests the page of a trace: its contents, and its functions, which run in node."""

import json
import os
import re
import shutil
import subprocess

import pytest

from llama_sieve import _trace
from llama_sieve.__main__ import main

START = {
    "kind": "start",
    "version": 1,
    "library": "0.1.0",
    "program": "p",
    "pid": 1,
    "simd": "scalar",
    "profile": "",
    "started": 0,
    "n": 2,
    "text": True,
}
SEQUENCE = {
    "kind": "sequence",
    "sequence": 1,
    "n_vocab": 4,
    "stages": [
        {"name": "penalties", "parameters": {"last_n": 64, "repeat": 2}},
        {"name": "min-p", "parameters": {"p": 0.05, "min_keep": 1}},
        {"name": "dist", "parameters": {"seed": 7}},
    ],
}


def token(text, position=0, removed="<b>x</b>"):
    return {
        "kind": "token",
        "sequence": 1,
        "position": position,
        "ms": 1,
        "us": 20,
        "trace_us": 30,
        "token": {"id": 3, "text": text, "rank": 0, "logit": 5, "surprisal": [0.1, 0]},
        "log_sum_exp": 5.1,
        "entropy": [0.3, 0],
        "stages": [
            {
                "name": "penalties",
                "us": 1,
                "before": 4,
                "after": 4,
                "largest": 0.9,
                "log_sum_exp": 5.05,
            },
            {
                "name": "min-p",
                "us": 1,
                "before": 4,
                "after": 1,
                "kept": 0.95,
                "largest": 0.95,
                "log_sum_exp": 5,
            },
            {
                "name": "dist",
                "us": 1,
                "before": 1,
                "after": 1,
                "largest": 1,
                "log_sum_exp": 5,
                "draw": 0.25,
            },
        ],
        "top": [
            {"id": 3, "text": text, "logit": 5, "p": 0.9, "final": 1},
            {
                "id": 2,
                "text": removed,
                "logit": 2,
                "p": 0.05,
                "final": 0,
                "removed_by": 1,
                "changes": [{"stage": 0, "logit": 1, "count": 3}],
            },
        ],
    }


def written(tmp_path, lines, name="run.jsonl", end="\n"):
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + end)
    return str(path)


HOSTILE = "</script><script>alert(1)</script><!--\u202e\u0000\x1b\u2028"


def test_a_text_cannot_end_the_element_that_holds_it(tmp_path):
    path = written(tmp_path, [START, SEQUENCE, token(HOSTILE)], name='"><script>.jsonl')
    text = _trace.page([path])
    # One script that runs, and one that holds data.
    assert text.count("<script") == 2 and text.count("</script>") == 2
    assert "<!--" not in text
    assert "alert(1)\\u003c/script>" in text
    assert 'data-name="&quot;&gt;&lt;script&gt;.jsonl"' in text


def test_the_policy_allows_this_script_and_style_alone(tmp_path):
    import base64
    import hashlib

    text = _trace.page([written(tmp_path, [START])])
    policy = re.search(r'Policy" content="([^"]*)"', text).group(1)
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    for kind in ("style", "script"):
        body = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "innerHTML" not in text and "eval(" not in text and "src=" not in text


def test_what_is_no_trace_is_told(tmp_path, capsys):
    old = written(tmp_path, [dict(START, version=0)], name="old")
    other = written(tmp_path, [{"a": 1}], name="other")
    half = written(tmp_path, ["x"], name="half", end="")
    for path, word in [(old, "version 0"), (other, "no trace"), (half, "no trace"), ("/no", "No")]:
        assert main(["trace", path]) == 2
        assert word in capsys.readouterr().err
    run = written(tmp_path, [START])
    assert main(["trace", run, run, run]) == 2
    assert main(["trace", run]) == 0
    assert os.stat(run + ".html").st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """Evaluates an expression over the functions of the page."""
    node = shutil.which("node")
    assert node, "the page's functions are tested in node"
    folder = tmp_path_factory.mktemp("page")
    run = written(folder, [START])
    script = re.search(r"<script>(.*?)</script>", _trace.page([run]), re.DOTALL).group(1)
    (folder / "page.js").write_text(script)

    def evaluate(expression, given=None):
        program = (
            "const p = require('./page.js'); const given = JSON.parse(process.argv[1]);"
            f"console.log(JSON.stringify({expression}))"
        )
        done = subprocess.run(
            [node, "-e", program, json.dumps(given)], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return evaluate


def test_what_cannot_be_seen_is_shown_as_a_sign(functions):
    shown = functions("p.shown(given)", "a\n\tb\x00\x1b\u202e\u200b\u0301\x9b")
    assert shown == "a\u23ce\u21e5b\u2400\u241b⟨U+202E⟩⟨U+200B⟩⟨U+301⟩⟨U+9B⟩"
    assert functions("p.shown(given)", "héé 日本 <b>") == "héé 日本 <b>"
    pieces = [{"id": 1, "text": "x"}, {"id": 1, "bytes": [226, 9]}, {"id": 7}, {}]
    assert functions("given.map(p.textOf)", pieces) == ["x", "⟨e2⟩⟨09⟩", "⟨7⟩", "▪"]


def test_rows_hold_so_many_columns(functions):
    texts = ["aaa", "bb", "cc", "x\n", "yyyyyyyyyy", "z"]
    assert functions("p.rowsOf(given, 5)", texts) == [0, 2, 4, 5]
    assert functions("p.rowsOf(given, 99, [0], 2)", texts) == [0, 2, 4]
    assert functions("p.rowsOf(given, 5, [0, 2, 4])", texts) == [0, 2, 4, 5]
    assert functions("p.rowsOf([], 5)") == [0]


def test_runs_are_aligned_at_the_first_token_that_differs(functions):
    assert functions("p.firstDifference(['a', 'b'], ['a', 'c'])") == 1
    assert functions("p.firstDifference(['a'], ['a', 'c'])") == 1


def test_loops_are_seen(functions):
    assert functions("p.periodAt([...'xabababab'], 9)") == 2
    assert functions("p.periodAt([...'xabababac'], 9)") == 0
    assert functions("p.periodAt([], 0)") == 0


def _sequence(texts, **columns):
    return {
        "texts": [*texts],
        "waits": [],
        "marks": [],
        "loops": [],
        "shapes": [],
        "marked": 0,
        **columns,
    }


def test_why_a_text_repeats_is_told(functions):
    of = _sequence("xabababay")
    said = functions("p.notes(given[0], 3, given[1])", [of, token("b")])
    assert said == [
        "this token lies in a repetition: the same 2 tokens stand 3 times in a row, from token 1 "
        'to 6: "ab"; against repetitions: penalties'
    ]
    free = token("b")
    free["stages"] = free["stages"][1:]
    said = functions("p.notes(given[0], 7, given[1])", [of, free])
    assert said[0].endswith("no stage of this chain works against repetitions")
    for outside in (0, 8):
        assert functions(f"p.notes(given[0], {outside}, given[1])", [of, free]) == []
    assert functions("p.notes(given[0], 3, given[1])", [_sequence("xababa"), free]) == []
    off = token("b")
    off["stages"][0]["name"] = "?penalties"
    said = functions("p.notes(given[0], 6, given[1])", [of, off])
    assert said[0].endswith("works against repetitions (switched off: penalties)")
    cold = [[0, {"stages": [{"name": "temp", "parameters": {"t": 0}}]}]]
    said = functions("p.notes(given[0], 3, given[1])", [{**of, "shapes": cold}, free])
    assert said[0].endswith("; the temperature is 0, so the most probable token always wins")
    one = functions("p.notes(given[0], 1, given[1])", [_sequence("aaa"), free])
    assert "the same token stands 3 times in a row, from token 0 to 2" in one[0]


def test_where_a_grammar_begins_is_told(functions):
    def line(**numbers):
        of = token("x")
        of["stages"][0].update(name="grammar", **numbers)
        return of

    lines = [line(waits=1), line(waits=1), line(), line(waits=1)]
    of = _sequence("wxyz", lines=[json.dumps(one) for one in lines])
    of["waits"] = functions("given.map(p.waits)", lines)
    assert of["waits"] == [True, True, False, True]
    said = [functions(f"p.notes(given, {i}, JSON.parse(given.lines[{i}]))", of) for i in range(4)]
    assert said[0] == []
    complete = 'with this token the trigger of the grammar is complete, the text ends in "wx": '
    assert said[1][0].startswith(complete)
    assert said[2] == ["the grammar holds from here on: the token before has completed its trigger"]
    assert said[3] == ["the grammar waits for its trigger again"]
    plain = _sequence("x", lines=[json.dumps(token("x"))])
    assert functions("p.notes(given, 0, JSON.parse(given.lines[0]))", plain) == []
    assert functions("p.waits(given) === undefined", token("x"))
    checked = dict(token("x"), grammar="checks")
    assert functions("p.waits(given)", checked) is False
    outside = _sequence("xy", waits=[False, False])
    said = functions("p.notes(given[0], 1, given[1])", [outside, checked])
    assert said == ["the grammar is in force: it has checked this token, and allows it"]


def test_what_a_grammar_forces_is_told(functions):
    def said(line):
        return functions("[p.isForced(given), p.forcedWords(given)]", line)

    assert said(token("x")) == [False, []]
    here = 'the grammar leaves only one continuation here, "é":⏎" (5 bytes): '
    must = {"n": 5, "text": 'é":\n'}
    all_of_it = [True, [here + "all of this token was forced"]]
    assert said(dict(token("é"), forced=must)) == all_of_it
    assert said(dict(token('é":\n'), forced=must)) == all_of_it
    beyond = "this token goes on behind that, where there was a choice"
    assert said(dict(token('é":\n1'), forced=must)) == [False, [here + beyond]]
    half = dict(token("x"), forced={"n": 1, "bytes": [169]})
    half["token"] = {"id": 3, "bytes": [169], "rank": 0, "logit": 5, "surprisal": [0.1, 0]}
    words = 'the grammar leaves only one continuation here, "⟨a9⟩" (1 byte): '
    assert said(half) == [True, [words + "all of this token was forced"]]
    # Without texts it is not known which part of the token it is.
    unknown = dict(token("x"), forced=dict(must, n=64))
    del unknown["token"]["text"]
    assert said(unknown) == [
        False,
        [here.replace("5 bytes", "64 bytes or more") + "in whatever tokens"],
    ]
    # A record that does not say what must follow, as for a set of values, or that has no texts.
    for name in ("grammar", "token-trie"):
        one = token("x")
        one["stages"][1]["name"] = name
        words = f"this token was forced: it is the only one that {name} lets through here"
        assert said(one) == [True, [words]]
        one["stages"][1]["before"] = 1
        assert said(one) == [False, []]
    other = {"kind": "other", "sequence": 1, "position": 0, "ms": 1, "token": {"id": 3}}
    assert functions("p.isForced(given)", other) is False
    of = {"texts": [*"abc"], "forced": [True, False, True]}
    assert functions("p.counted(given)", of) == "3 tokens, 2 of them forced by a grammar"
    assert functions("p.counted(given)", dict(of, forced=[False] * 3)) == "3 tokens"


def test_places_to_go_to_are_listed(functions):
    waits = [True, True, *[False] * 9]
    of = _sequence("qwxabababab", waits=waits)
    found = functions("(p.listMarks(given), [given.marks, given.loops])", of)
    assert found == [
        [
            [1, "1: the trigger of the grammar is complete"],
            [3, "3 to 8: the same 2 tokens stand three times"],
        ],
        [{"start": 3, "end": 11, "period": 2}],
    ]
    held = _sequence("xyzxyz", waits=[None, False, False, None, False, False])
    undefined = "given.waits = given.waits.map((w) => (w === null ? undefined : w))"
    listed = functions(f"({undefined}, p.listMarks(given), given.marks)", held)
    assert listed == [[1, "1: a grammar is in force from here"]]
    # The same, while the record grows.
    in_parts = (
        "(() => { const all = given.texts; const waits = given.waits;"
        " for (let n = 1; n <= all.length; n += 1) {"
        " given.texts = all.slice(0, n); given.waits = waits.slice(0, n); p.listMarks(given); }"
        " return [given.marks, given.loops]; })()"
    )
    assert functions(in_parts, of) == found
    many = _sequence([text for i in range(100) for text in ("a", "a", "a", str(i))])
    listed, loops = functions("(p.listMarks(given), [given.marks, given.loops])", many)
    assert len(listed) == 12 and len(loops) == 100
    among = functions("(p.listMarks(given), p.loopsIn(given, 3, 9))", many)
    assert [loop["start"] for loop in among] == [4, 8]


def test_a_refused_token_is_replaced(functions):
    instead = dict(token("b", 1), replaces=True)
    lines = [json.dumps(line) for line in (START, SEQUENCE, token("a"), token("x", 1), instead)]
    program = (
        "(() => { const r = new p.Run('r'); given.forEach((l) => r.add(l)); return r.of(1); })()"
    )
    of = functions(program, lines)
    assert of["texts"] == ["a", "b"] and len(of["lines"]) == len(of["cost"]) == 2


def test_the_way_of_a_candidate_is_told_in_words(functions):
    line = token("x")
    course = functions("given.top.map((c) => p.course(given, c))", line)
    assert [now and round(now["p"], 3) for now in course[1]] == [0.017, None, None]
    stages = SEQUENCE["stages"]
    min_p, penalties = [line, stages[1]["parameters"]], [line, stages[0]["parameters"]]
    why = functions("p.reason(...given, 1, {p: 0.0171}, null)", min_p)
    assert why == "its probability of 0.0171 is below 0.0475: 0.05 times the largest, 0.95"
    change = functions("p.reason(...given, 0, null, {count: 3})", penalties)
    assert change == "it stands 3 times among the last 64 tokens"
    change = functions("p.reason(...given, 0, null, {count: 1})", penalties)
    assert change == "it stands once among the last 64 tokens"
    line["stages"][1].update(name="grammar", expected="'\"', [0-9]\u202e")
    why = functions("p.reason(...given, 1, {p: 0.0171}, null)", [line, {}])
    assert why == (
        "the grammar does not allow it here; it allows 1 tokens, and expects '\"', [0-9]⟨U+202E⟩"
    )
    of = {"texts": ["a", "b\n", "c"]}
    assert functions("[1, 2, 9].map((n) => p.repeated(given, 2, n))", of) == [
        ': "b⏎"',
        ': "ab⏎"',
        ': "ab⏎"',
    ]


def test_a_record_is_read_up_to_its_half_line(functions):
    lines = [json.dumps(line) for line in (START, SEQUENCE, token("a"), token("b", 1))]
    lines.append(lines[-1][:100])
    read = (
        "(() => { const run = new p.Run('r'); given.forEach((l) => run.add(l));"
        " const of = run.of(1); const next = (text, from) => p.findNext(of, text, from);"
        " return [of.texts, run.bad, next('<b>', 0), next('b', 1), next('zzz', 0),"
        " p.shapeAt(of, 1).stages.length] })()"
    )
    assert functions(read, lines) == [["a", "b"], 1, 0, 1, -1, 3]
    wrong = "(() => { try { new p.Run('r').add(given) } catch (e) { return e.message } })()"
    assert "version 9" in functions(wrong, json.dumps(dict(START, version=9)))
    assert "first line" in functions(wrong, json.dumps(token("a")))
