"""`topranker` against Python's own sort."""

import random

from e3run import Service


def ranked(items, k):
    best = sorted(items, key=lambda e: (-e[1], e[0].encode()))[:k]
    return [e[0] for e in best], [e[1] for e in best]


def test_ranks_records():
    service = Service("topranker", config={"k": "7"})
    rng = random.Random(1)
    for _ in range(200):
        n = rng.randrange(100)
        items = [f"i{rng.randrange(1000)}" for _ in range(n)]
        scores = [rng.choice([rng.random(), float(rng.randrange(5))]) for _ in range(n)]
        r = service.record({"items": items, "scores": scores, "id": 5})
        assert r.status == 0, r.reply
        top, top_scores = ranked(zip(items, scores), 7)
        out = r.record()
        assert (out["top"], out["top_scores"], out["id"]) == (top, top_scores, 5)


def test_keeps_sums():
    service = Service(
        "topranker", collections={"scores": "ordered-map"}, config={"k": "10", "keep": "sum"}
    )
    rng, sums = random.Random(2), {}
    for _ in range(500):
        item, score = f"w{int(rng.paretovariate(0.7)) % 300}", float(rng.randrange(1, 9))
        sums[item] = sums.get(item, 0.0) + score
        r = service.record({"items": item, "scores": score}, key=item.encode())
        assert r.record()["top_scores"] == [sums[item]]
    out = service.record({"op": "top"}, key=b"any").record()
    assert (out["top"], out["top_scores"]) == ranked(sums.items(), 10)
    assert out["items"] == len(sums)
