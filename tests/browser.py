"""A page, opened in a headless Chromium without a network: what a script in it finds."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium to open the page in")

_ERRORS = """
<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
console.error = (...said) => errors.push(said.join(" "));
</script>
"""

_THEN = """
<script>
addEventListener("load", () => setTimeout(async () => {
  let found = null;
  try { found = await (async () => { %s })(); } catch (error) { errors.push(String(error)); }
  document.title = JSON.stringify({found, errors});
}, 500));
</script>
"""


def opened(page: Path, script: str, width: int = 1400, libraries: str = "") -> Any:
    """Returns what a script returns that runs in a page once it is drawn; `errors` is what the browser complained of.

    Args:
        page: the file; a copy beside it is opened.
        script: JavaScript, as the body of an async function.
        width: of the window, in pixels.
        libraries: what to load before.
    """
    text = page.read_text().replace("<head>", "<head>" + _ERRORS, 1)
    head, body, _ = text.rpartition("</body>")
    copy = page.with_name(f"opened-{width}-{page.name}")
    copy.write_text(f"{head}<script>{libraries}</script>{_THEN % script}</body></html>")
    outside = page.with_name("outside.html")
    outside.write_text(
        f"<iframe id=frame style='width:{width}px;height:900px;border:0' src='{copy.name}'></iframe>"
        "<script>setInterval(() => { const inside = document.getElementById('frame').contentDocument;"
        "document.title = inside.title; }, 100);</script>"
    )
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --allow-file-access-from-files"
    flags += " --disable-background-networking --disable-sync --virtual-time-budget=15000 --dump-dom"
    command = ["chromium", *flags.split(), f"--user-data-dir={page.parent}/profile"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", outside.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", dom, re.S)
    assert body, "the page has no end"
    assert title is not None, dom[-500:]
    assert title[1].startswith("{"), f"the script did not come to its end: {title[1]}"
    return json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def axe() -> str:
    """Returns the source of axe-core, which finds what people without eyes, or without a mouse, stumble over."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs axe-core: pip install --no-deps axe-playwright-python")
    return Path(found.submodule_search_locations[0], "axe.min.js").read_text()


AXE = """
  const checked = await axe.run(document, {resultTypes: ["violations"]});
  return checked.violations.map((each) => [each.id, each.impact, each.nodes.slice(0, 3).map((node) => node.html)]);
"""
