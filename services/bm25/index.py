"""Builds the inverted index for the service `bm25`: python3 index.py < documents > index

Each line of the input is a document: its name, a tab, its text. The format of the index stands in
`src/index.rs`. Words are those of the service: see `words`.
"""

import collections
import re
import struct
import sys

MAGIC = b"E3BM25\x00\x01"


def words(text: str) -> list[bytes]:
    """Runs of ASCII letters, digits, `_` and bytes beyond ASCII, two bytes or more, in lower case."""
    return re.findall(rb"[a-z0-9_\x80-\xff]{2,}", text.encode().lower())


def index(documents) -> bytes:
    """The index of (name, text) pairs, in their order."""
    names, lengths, postings = [], [], collections.defaultdict(list)
    for number, (name, text) in enumerate(documents):
        counts = collections.Counter(words(text))
        names.append(name.encode())
        lengths.append(counts.total())
        for word, count in counts.items():
            postings[word].append((number, count))
    terms = sorted(postings)

    def numbers(values):
        values = list(values)
        return struct.pack(f"<{len(values)}I", *values)

    def ends(parts):
        total, out = 0, []
        for part in parts:
            total += len(part)
            out.append(total)
        return numbers(out)

    entries = sum(len(p) for p in postings.values())
    sizes = (len(names), len(terms), sum(map(len, names)), sum(map(len, terms)), entries)
    return b"".join(
        [
            MAGIC,
            struct.pack("<5I", *sizes),
            numbers(lengths),
            ends(names),
            ends(terms),
            ends(postings[t] for t in terms),
            *names,
            *terms,
            *(struct.pack("<2I", *entry) for t in terms for entry in postings[t]),
        ]
    )


def main():
    documents = []
    for number, line in enumerate(sys.stdin, 1):
        name, tab, text = line.rstrip("\r\n").partition("\t")
        if not tab or not 1 <= len(name.encode()) <= 255:
            sys.exit(f"line {number}: must be a name of 1..=255 bytes, a tab and a text")
        documents.append((name, text))
    sys.stdout.buffer.write(index(documents))


if __name__ == "__main__":
    main()
