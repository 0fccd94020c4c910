"""Makes a picture of a trace's page in Chromium: `ci/trace-page --pictures`.

    pictures.py BROWSER RECORD PICTURE light|dark

It shows the token whose candidates were removed by the most different stages. A picture of more
than 150 KB is an error.
"""

import io
import json
import sys
import tempfile
import types
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
# An empty package, since importing the real one needs the library.
package = types.ModuleType("llama_sieve")
package.__path__ = [str(ROOT / "python/src/llama_sieve")]
sys.modules["llama_sieve"] = package
from llama_sieve import _trace  # noqa: E402

MOST_BYTES = 150_000


def shown(record):
    """Returns the index of the sequence in the trace, and the index of the token in it."""
    sequences = {}
    for text in record.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["kind"] in ("token", "other"):
            sequences.setdefault(line["sequence"], []).append(line)
    places = [
        (place, token)
        for place, tokens in enumerate(sequences.values())
        for token in range(len(tokens))
    ]
    lines = list(sequences.values())
    return max(places, key=lambda of: told(lines[of[0]][of[1]]))


def told(line):
    """Returns the number of stages that removed candidates, the number of changes with a reason, 3
    at most, and the number of stages."""
    top = line.get("top", [])
    removed = {candidate["removed_by"] for candidate in top if "removed_by" in candidate}
    reasons = sum(len(change) > 2 for one in top for change in one.get("changes", []))
    return len(removed), min(reasons, 3), len(line.get("stages", []))


def without_times(record):
    """Returns the lines of the trace without values that depend on the machine."""
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line.pop("us", None)
    return "".join(json.dumps(line) + "\n" for line in lines)


def main():
    browser_path, record, picture, scheme = sys.argv[1:]
    record, picture = Path(record), Path(picture)
    place, token = shown(record)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        page_file = Path(made) / "page.html"
        timeless = Path(made) / record.name
        timeless.write_text(without_times(record), encoding="utf-8")
        page_file.write_text(_trace.page([str(timeless)]), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        size = {"width": 1200, "height": 760}
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.goto(page_file.as_uri())
        page.wait_for_selector("body[data-ready=yes]", state="attached")
        page.select_option("#sequence", str(place))
        page.locator(".text").press("Home")
        for _ in range(token):
            page.locator(".text").press("ArrowRight")
        taken = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        # The page has few colours, apart from the edges of letters.
        taken.convert("RGB").quantize(64).save(picture, optimize=True)
        browser.close()
    length = picture.stat().st_size
    print(f"{picture}: {length} bytes")
    if length > MOST_BYTES:
        sys.exit(f"{picture} has more than {MOST_BYTES} bytes")


if __name__ == "__main__":
    main()
