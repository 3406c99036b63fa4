"""`bm25` against bm25s on a real corpus: the paragraphs of Python's help."""

import random
import sys
from pathlib import Path

import bm25s
import numpy as np
import pydoc_data.topics
import pytest
from e3run import Service

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services" / "bm25"))
import index  # noqa: E402


def corpus():
    return [
        (f"{topic}/{number}", paragraph)
        for topic, text in sorted(pydoc_data.topics.topics.items())
        for number, paragraph in enumerate(text.split("\n\n"))
        if paragraph.strip()
    ]


@pytest.mark.parametrize("k1,b", [(1.2, 0.75), (2.0, 0.3)])
def test_equals_bm25s(k1, b, tmp_path):
    documents = corpus()
    assert len(documents) > 2000
    (tmp_path / "index").write_bytes(index.index(documents))
    words = [[w.decode() for w in index.words(text)] for _, text in documents]
    model = bm25s.BM25(method="lucene", k1=k1, b=b, dtype="float64")
    model.index(words, show_progress=False)
    service = Service(
        "bm25",
        config={"k1": str(k1), "b": str(b), "k": "20"},
        assets={"index": tmp_path / "index"},
    )
    numbers = {name: i for i, (name, _) in enumerate(documents)}
    rng = random.Random(1)
    for _ in range(200):
        source = rng.choice([w for w in words if len(w) > 5])
        query = rng.sample(source, rng.randrange(1, 6))
        r = service.record({"query": " ".join(query)})
        assert r.status == 0, r.reply
        out = r.record()
        # a repeated word counts twice
        expected = sum(model.get_scores([word]) for word in query)
        best = np.sort(expected)[::-1][:20]
        best = best[best > 0]
        assert out["matches"] == np.count_nonzero(expected)
        assert np.allclose(out["scores"], best, rtol=1e-6, atol=1e-9)
        said = [expected[numbers[name]] for name in out["documents"]]
        assert np.allclose(out["scores"], said, rtol=1e-6, atol=1e-9)
        # ties in the order of the index
        for a, c, x, y in zip(out["documents"], out["documents"][1:], out["scores"], out["scores"][1:]):
            assert x > y or numbers[a] < numbers[c]
    service.close()


def test_the_index_of_the_runbooks_is_that_of_their_texts():
    data = Path(__file__).resolve().parent.parent / "data"
    lines = (data / "runbooks.tsv").read_text().splitlines()
    documents = [tuple(line.split("\t", 1)) for line in lines]
    assert len(documents) == 49
    assert index.index(documents) == (data / "runbooks.bm25").read_bytes()
