"""A headless browser that opens a page in a frame of a given width and answers questions about it."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
TIME_MAX_S = 120

# The page is not changed: the frame inherits nothing but the origin of the document that asks.
HARNESS = """<!doctype html>
<meta charset="utf-8">
<body style="margin:0">
<iframe id="page" style="border:0;width:WIDTHpx;height:1500px"></iframe>
<pre id="answer"></pre>
<script>
const text = new TextDecoder().decode(Uint8Array.from(atob("PAGE"), c => c.charCodeAt(0)));
const question = QUESTION;
const frame = document.getElementById("page");
frame.onload = () => {
  let answer;
  try { answer = question(frame.contentDocument, frame.contentWindow); } catch (e) { answer = {error: String(e)}; }
  const bytes = new TextEncoder().encode(JSON.stringify(answer));
  document.getElementById("answer").textContent = "ANSWER:" + btoa(Array.from(bytes, b => String.fromCharCode(b)).join(""));
};
frame.srcdoc = text;
</script>
"""


@dataclass
class Asked:
    """What came back."""

    answer: dict
    console: list


def find() -> str:
    """The installed browser; without it the test is skipped, except in continuous integration."""
    found = [path for path in map(shutil.which, PROGRAMS) if path]
    if not found:
        why = "no browser is installed: scripts/setup --checks installs chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    return found[0]


def ask(page: str, width: int, question: str, dark: bool = False) -> Asked:
    """Opens a page `width` pixels wide and calls a JavaScript function `(document, window) => answer` on it."""
    harness = HARNESS.replace("WIDTH", str(width)).replace("QUESTION", question)
    harness = harness.replace("PAGE", base64.b64encode(page.encode()).decode())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "harness.html"
        path.write_text(harness)
        words = [find(), "--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                 f"--user-data-dir={directory}/profile", "--window-size=1300,1600", "--enable-logging=stderr",
                 "--virtual-time-budget=5000", "--disable-background-networking"]
        if os.geteuid() == 0:  # the sandbox does not run as root
            words.append("--no-sandbox")
        if dark:
            words.append("--blink-settings=preferredColorScheme=0")
        words += ["--dump-dom", path.as_uri()]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=TIME_MAX_S)
    marked = ended.stdout.partition("ANSWER:")[2].partition("<")[0]
    assert marked, f"the browser gave no answer (code {ended.returncode}): {ended.stderr[-500:]}"
    console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    return Asked(json.loads(base64.b64decode(marked)), console)
