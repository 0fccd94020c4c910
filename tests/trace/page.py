"""Drives the page of a trace in Chromium: `ci/trace-page`.

Opens a run of 100,000 tokens, two runs beside each other, and hostile texts; clicks, types,
scrolls, and measures three promises: the page opens within 3 s, it has at most 500 nodes in view,
and no step of scrolling takes more than 50 ms. On a busy machine other processes interrupt the
browser, so the check uses the browser's own processor time, or the quickest of several tries.
"""

import json
import os
import sys
import tempfile
import threading
import types
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
# An empty package, since importing the real one needs the library.
package = types.ModuleType("llama_sieve")
package.__path__ = [str(ROOT / "python/src/llama_sieve")]
sys.modules["llama_sieve"] = package
from llama_sieve import _follow, _trace  # noqa: E402

# The lines that the package's tests use, without importing the package, which needs the library.
SOURCE = (ROOT / "python/tests/test_trace.py").read_text(encoding="utf-8")
LINES = {"json": json}
BEGIN, END = SOURCE.index("START ="), SOURCE.index("def test_a_text_cannot_end")
exec(compile(SOURCE[BEGIN:END], "test_trace.py", "exec"), LINES)

OPENS_WITHIN = 3.0
MOST_NODES = 500
STEP_MS = 50


def write(folder, name, tokens):
    path = Path(folder) / f"{name}.jsonl"
    lines = [LINES["START"], LINES["SEQUENCE"], *tokens]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return str(path)


def page_of(folder, name, *paths):
    path = Path(folder) / f"{name}.html"
    path.write_text(_trace.page(paths), encoding="utf-8")
    return path.as_uri()


def opened(browser, address, **kind):
    page = browser.new_page(**kind)
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append("a dialog"))
    page.on("request", lambda request: page.complaints.append(request.url)
            if not request.url.startswith("file:") else None)
    page.goto(address, wait_until="commit")
    return page


def wait(page, state="ready", seconds=600):
    page.wait_for_selector(f"body[data-{state}]", state="attached", timeout=1000 * seconds)


def until(page, is_so, seconds=600):
    """Waits until the condition `is_so` about the page is true. It is evaluated here, since the
    policy of the page forbids evaluating it there."""
    for _ in range(20 * seconds):
        if is_so():
            return
        page.wait_for_timeout(50)
    check("it comes in time", False)


def processor_times():
    """Returns the processor seconds of each process that this one has started."""
    children, seconds = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Behind the name, which may have spaces.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(process)
        ticks = int(fields[11]) + int(fields[12])
        seconds[process] = ticks / os.sysconf("SC_CLK_TCK")
    found, waiting = {}, [os.getpid()]
    while waiting:
        for process in children.get(waiting.pop(), []):
            found[process] = seconds[process]
            waiting.append(process)
    return found


def nodes(page):
    return page.evaluate("document.body.querySelectorAll('*:not(script)').length")


def text(page, name):
    return page.locator(name).text_content()


def check(said, what):
    print(f"{'ok' if what else 'FAILED'}: {said}")
    if not what:
        sys.exit(1)


def quickly_opened(browser, address):
    """Returns an opened page, and the seconds of the quickest of three tries."""
    quickest = float("inf")
    for more in (True, True, False):
        before = processor_times()
        page = opened(browser, address)
        wait(page, "open")
        after = processor_times()
        took = sum(after[process] - before.get(process, 0) for process in after)
        quickest = min(quickest, took)
        if more:
            page.close()
    return page, quickest


def long_run(browser, folder):
    words = [" the", " word", ".", "\n", " x" * 3, "日本"]
    tokens = [LINES["token"](words[i * 7 % len(words)], i) for i in range(100_000)]
    tokens[77_777] = LINES["token"](" needle", 77_777, removed="haystack")
    address = page_of(folder, "long", write(folder, "long", tokens))
    page, took = quickly_opened(browser, address)
    check(f"100,000 tokens open within {OPENS_WITHIN} s: {took:.2f}", took < OPENS_WITHIN)
    wait(page)
    check(f"{nodes(page)} nodes", nodes(page) <= MOST_NODES)
    steps = page.evaluate("""async (bound) => {
        const box = document.querySelector('.text');
        let most = 0;
        for (let i = 1; i <= 60; i += 1) {
            let least = Infinity;
            for (let again = 0; again < 100 && least >= bound; again += 1) {
                const began = performance.now();
                box.scrollTop = 5000 * i + 24 * (again % 3);
                box.dispatchEvent(new Event('scroll'));
                void box.offsetHeight;
                least = Math.min(least, performance.now() - began);
                await new Promise(requestAnimationFrame);
            }
            most = Math.max(most, least);
            if (most >= bound) break;
        }
        return most;
    }""", STEP_MS)
    check(f"the longest step of scrolling: {steps:.1f} ms", steps < STEP_MS)
    check(f"{nodes(page)} nodes after it", nodes(page) <= MOST_NODES)
    page.fill("#search", "haystack")
    page.click("#next")
    check("the search finds who removed it", text(page, "#title").startswith("77777:"))
    check("and why", '"haystack" removed by min-p: its probability of' in text(page, "#why"))
    page.locator(".text").press("ArrowRight")
    check("a key goes on", text(page, "#title").startswith("77778:"))
    page.locator(".text").press("Home")
    check("and to the beginning", text(page, "#title").startswith("0:"))
    page.locator("#strip").click(position={"x": 300, "y": 20})
    check("the strip goes elsewhere", not text(page, "#title").startswith("0:"))
    check(f"nothing was asked for or complained of: {page.complaints}", page.complaints == [])
    page.close()


def two_runs(browser, folder):
    one = [LINES["token"](f" w{i}", i) for i in range(500)]
    two = one[:400] + [LINES["token"](" other", 400)] + one[401:]
    address = page_of(folder, "two", write(folder, "one", one), write(folder, "two", two))
    page = opened(browser, address)
    wait(page)
    check("two runs are aligned", "differ from token 400" in text(page, "#said"))
    check("at the token that differs", page.locator(".differs").count() == 2)
    check(f"{nodes(page)} nodes", nodes(page) <= MOST_NODES)
    page.locator(".differs").nth(1).click()
    check("the second is told when it is clicked", '" other"' in text(page, "#title"))
    page.close()


def replaced(browser, folder):
    tokens = [LINES["token"](f" w{i}", i) for i in range(5)]
    instead = {**LINES["token"](" instead", 4), "refused": {"id": 1, "text": " w4"}}
    tokens.append({**instead, "replaces": True})
    page = opened(browser, page_of(folder, "replaced", write(folder, "replaced", tokens)))
    wait(page)
    check("a refused token does not count", "5 tokens" in text(page, ".pane h2"))
    page.locator(".t").last.click()
    check("what replaces it is told", '4: " instead"' in text(page, "#title"))
    refused = 'the chain chose " w4" at first, which the grammar has refused'
    check("and what was refused", refused in text(page, "#notes"))
    page.close()


def questions(browser, folder):
    """Checks that the page answers in words the questions of three people who see it for the first
    time."""
    texts = [" a", " b", " a", " b", " a", " b", "<call>", "{"]
    tokens = [LINES["token"](text, i, removed=" gone") for i, text in enumerate(texts)]
    for of in tokens:
        waits = {} if of is tokens[-1] else {"waits": 1}
        of["stages"][0].update(name="grammar", **waits)
    page = opened(browser, page_of(folder, "asked", write(folder, "asked", tokens)))
    wait(page)
    page.keyboard.press("ArrowRight")
    check("a key goes on before anything is clicked", text(page, "#title").startswith("1:"))
    page.locator("#marks button").nth(0).click()
    check("a place of the list is gone to", text(page, "#title").startswith("0:"))
    page.keyboard.press("ArrowRight")
    check("a key goes on from there", text(page, "#title").startswith("1:"))
    marks = page.locator("#marks").inner_text()
    check("the list has the loop", "0 to 5: the same 2 tokens stand three times" in marks)
    again = page.locator(".t.again").count()
    check(f"its copies are marked, {again} tokens", again == 6)
    check("and the trigger", "6: the trigger of the grammar is complete" in marks)
    page.fill("#search", "gone")
    page.click("#next")
    why = text(page, "#why")
    check("which stage has removed a word", '" gone" removed by min-p: its probability of' in why)
    tokens_shown = page.locator(".t")
    tokens_shown.nth(5).click()
    loops = 'the same 2 tokens stand 3 times in a row, from token 0 to 5: " a b"; no stage'
    check("why it loops", loops in text(page, "#notes"))
    tokens_shown.nth(6).click()
    began = 'the trigger of the grammar is complete, the text ends in " a b a b a b<call>"'
    check("why a call began", began in text(page, "#notes"))
    tokens_shown.nth(7).click()
    check("and what holds then", "the grammar holds from here on" in text(page, "#notes"))
    page.close()
    # As in llama-server, whose grammar is outside the chain, and checks nothing while it thinks.
    states = [None, "waits", "waits", "checks", "checks"]
    tokens = [LINES["token"](t, i) for i, t in enumerate([" hm", "\n", "<call>", "{", "}"])]
    tokens = [{**of, "grammar": state} if state else of for of, state in zip(tokens, states)]
    page = opened(browser, page_of(folder, "checked", write(folder, "checked", tokens)))
    wait(page)
    for at, words in [
        (2, "with this token the trigger of the grammar"),
        (3, "the grammar holds from here on"),
        (4, "the grammar is in force"),
    ]:
        page.locator(".t").nth(at).click()
        check(f"a grammar outside the chain, too: {words}", words in text(page, "#notes"))
    page.locator(".t").nth(1).click()
    check("before, there is nothing to say of it", "grammar" not in text(page, "#notes"))
    page.close()


def forced(browser, folder):
    tokens = [LINES["token"](text, i) for i, text in enumerate(['{"', 'na', 'me": "A', "b"])]
    for i, must in [(0, '{"name": "'), (1, 'name": "'), (2, 'me": "')]:
        tokens[i]["forced"] = {"n": len(must), "text": must}
    page = opened(browser, page_of(folder, "forced", write(folder, "forced", tokens)))
    wait(page)
    check("forced tokens are marked", page.locator(".t.forced").all_inner_texts() == ['{"', "na"])
    edges = page.evaluate("""[...document.querySelectorAll('.t')].map((token) =>
        getComputedStyle(token).borderTopStyle)""")
    check("by a line, not by a colour", edges == ["dotted", "dotted", "none", "none"])
    check("and counted", "4 tokens, 2 of them forced by a grammar" in text(page, ".pane h2"))
    for at, words in [(1, "all of this token was forced"), (2, "goes on behind that")]:
        page.locator(".t").nth(at).click()
        check(f"what was forced is told: {words}", words in text(page, "#notes"))
    painted = page.evaluate("""(() => { const strip = document.getElementById('strip');
        const pen = strip.getContext('2d');
        return [0.1, 0.4, 0.9].map((part) =>
            pen.getImageData(Math.floor(part * strip.width), 0, 1, 1).data[3] > 0); })()""")
    check("the strip shows where", painted == [True, True, False])
    page.close()


def sequences(browser, folder):
    """Checks that the list and the search find the tokens of all sequences, whichever is shown."""
    first = [LINES["token"](f" w{i}", i) for i in range(5)]
    second = [{**LINES["token"](" again", i), "sequence": 2} for i in range(4)]
    lines = [*first, {**LINES["SEQUENCE"], "sequence": 2}, *second]
    page = opened(browser, page_of(folder, "several", write(folder, "several", lines)))
    wait(page)
    options = page.locator("#sequence option").all_inner_texts()
    check("each tells how it begins", "1 of 2:  w0 w1" in options[0] and "4 tokens" in options[1])
    check("the first is shown", page.locator(".t").count() == 5)
    page.locator("#marks button").first.click()
    check("a place of another one is gone to", "the same token stands" in text(page, "#notes"))
    check("which is shown then", page.locator(".t").count() == 4)
    page.fill("#search", "w3")
    page.keyboard.press("Enter")
    check("the search finds what is in another one", text(page, "#title").startswith('3: " w3"'))
    check("and says in which", text(page, "#said").startswith("sequence 1, token 3"))
    page.close()


def hostile(browser, folder):
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\u0000"
    tokens = [LINES["token"](bad, i, removed=bad) for i in range(5)]
    for kind in ({}, {"color_scheme": "dark", "viewport": {"width": 360, "height": 700}}):
        page = opened(browser, page_of(folder, "bad", write(folder, "bad", tokens)), **kind)
        wait(page)
        page.locator(".t").first.click()
        check("a hostile text is only text", "<img src=x" in text(page, "#title"))
        check("its signs are shown", "U+202E" in text(page, "#title"))
        check(f"nothing has run: {page.complaints}", page.complaints == [])
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        check(f"nothing is wider than the window by {wide}", wide <= 0)
        page.close()


def followed(browser, folder):
    path = write(folder, "followed", [LINES["token"](f" w{i}", i) for i in range(50)])
    with _follow.Server([path]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = opened(browser, server.address)
        wait(page)
        check("what is there is shown", text(page, "#title").startswith("49:"))
        more = "".join(json.dumps(LINES["token"](f" x{i}", i)) + "\n" for i in range(50, 300))
        with open(path, "a", encoding="utf-8") as file:
            file.write(more[:-20])
        until(page, lambda: text(page, "#title").startswith("298:"))
        with open(path, "a", encoding="utf-8") as file:
            file.write(more[-20:])
        until(page, lambda: text(page, "#title").startswith("299:"))
        check("what comes is shown, line by whole line", page.locator(".now").count() == 1)
        page.locator(".t").first.click()
        chosen = text(page, "#title")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(LINES["token"](" y", 300)) + "\n")
        until(page, lambda: "301 tokens" in text(page, ".pane h2"))
        check("a token that was clicked stays", text(page, "#title") == chosen)
        check(f"{nodes(page)} nodes", nodes(page) <= MOST_NODES)
        own = [url for url in page.complaints if url.startswith(server.address)]
        check("only its own server was asked, and nothing complained of", page.complaints == own)
        write(folder, "followed", [LINES["token"](" anew", 0)])
        until(page, lambda: "anew" in text(page, "#title"))
        check("another record is begun anew", text(page, "#title").startswith("0:"))
        server.shutdown()
    until(page, lambda: "no more comes" in text(page, "#said"))
    check("the end of the server is told", True)
    page.close()


def main():
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
        hostile(browser, folder)
        two_runs(browser, folder)
        replaced(browser, folder)
        questions(browser, folder)
        forced(browser, folder)
        sequences(browser, folder)
        followed(browser, folder)
        long_run(browser, folder)
        browser.close()


if __name__ == "__main__":
    main()
