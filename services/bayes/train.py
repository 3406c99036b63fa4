"""Counts words for the service `bayes`: python3 train.py [--min-count N] < texts > model

Each line of the input is a document: its class, a tab, its text. The model has, separated by tabs,
the classes in the first line (in the order of their bytes), the number of documents of each in the
second, then a word and its occurrences in each class, in the order of the words. Words are those of
the service: see `words`.
"""

import argparse
import collections
import re
import sys


def words(text: str) -> list[bytes]:
    """Runs of ASCII letters, digits, `_` and bytes beyond ASCII, two bytes or more, in lower case."""
    return re.findall(rb"[a-z0-9_\x80-\xff]{2,}", text.encode().lower())


def train(documents, min_count: int = 1) -> str:
    """The model of (class, text) pairs, without words that occur fewer than `min_count` times."""
    number, counts = collections.Counter(), collections.defaultdict(collections.Counter)
    for label, text in documents:
        number[label] += 1
        for word in words(text):
            counts[word][label] += 1
    classes = sorted(number, key=str.encode)
    lines = [classes, [str(number[c]) for c in classes]]
    for word in sorted(counts):
        if counts[word].total() >= min_count:
            lines.append([word.decode(), *(str(counts[word][c]) for c in classes)])
    return "".join("\t".join(line) + "\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--min-count", type=int, default=1, metavar="N")
    args = parser.parse_args()
    documents = []
    for number, line in enumerate(sys.stdin, 1):
        label, tab, text = line.rstrip("\r\n").partition("\t")
        if not label or not tab:
            sys.exit(f"line {number}: must be a class, a tab and a text")
        documents.append((label, text))
    sys.stdout.write(train(documents, args.min_count))


if __name__ == "__main__":
    main()
