#!/usr/bin/env python3
"""Makes runbooks.tsv and its index runbooks.bm25 from the runbooks of prometheus-operator.

usage: git clone https://github.com/prometheus-operator/runbooks && cd runbooks
       git checkout a685d14cf5128bb30e2bf935c3983decd772d885
       python3 make_runbooks.py content/runbooks
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "services" / "bm25"))
import index  # noqa: E402


def documents(folder: Path):
    """Name and text of each runbook, in the order of their names; the text is one line."""
    for path in sorted(folder.rglob("*.md"), key=lambda p: p.stem):
        if path.stem == "_index":
            continue
        text = re.sub(r"(?s)\A---.*?\n---\n", "", path.read_text())
        text = re.sub(r"\]\([^)]*\)|https?://\S+", " ", text)
        yield path.stem, " ".join(text.split())


def main():
    runbooks = list(documents(Path(sys.argv[1])))
    lines = (f"{name}\t{text}\n" for name, text in runbooks)
    (HERE / "runbooks.tsv").write_text("".join(lines))
    (HERE / "runbooks.bm25").write_bytes(index.index(runbooks))


if __name__ == "__main__":
    main()
