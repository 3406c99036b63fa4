"""`count` against exact counts of the words of a real text."""

import collections
import math
import re

import cbor2
import pydoc_data.topics
from e3run import Service

BITS = 16384


def words():
    text = " ".join(pydoc_data.topics.topics[t] for t in sorted(pydoc_data.topics.topics)[:12])
    return re.findall(r"[a-z]+", text.lower())[:20000]


def test_counts_of_words():
    service = Service(
        "count",
        collections={"cells": "hash-map", "bitmaps": "ordered-map"},
        config={"field": "words", "bits": str(BITS), "window-s": "0"},
    )
    exact, said = collections.Counter(), {}
    all_words = words()
    for at in range(0, len(all_words), 20):
        part = all_words[at : at + 20]
        r = service.record({"words": part}, key=b"%d" % (at % 7))
        assert r.status == 0, r.reply
        exact.update(part)
    report = service.record({"op": "report"}).record()
    # linear counting: within four standard errors
    assert abs(report["distinct"] - len(exact)) <= 4 * report["error"]
    t = len(exact) / BITS
    assert math.isclose(report["error"], math.sqrt(BITS * (math.exp(t) - t - 1)), rel_tol=0.05)
    for word in exact:
        r = service.call(cbor2.dumps({"op": "get", "words": word}))
        said[word] = r.record()["count"]
    # never too low; too high with the stated probability
    assert all(said[w] >= exact[w] for w in exact)
    wrong = sum(said[w] != exact[w] for w in exact)
    share = 1 - report["exact_share"]
    assert abs(wrong - share * len(exact)) <= 5 * math.sqrt(share * len(exact)) + 1
