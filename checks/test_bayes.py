"""`bayes` against scikit-learn's MultinomialNB on real texts: the topic of a paragraph."""

import random
import sys
from pathlib import Path

import numpy as np
import pydoc_data.topics
import pytest
from e3run import Service
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services" / "bayes"))
import train  # noqa: E402


def paragraphs():
    topics = sorted(pydoc_data.topics.topics.items(), key=lambda t: -len(t[1]))[:6]
    labelled = [(name, p) for name, text in topics for p in text.split("\n\n") if len(p) > 60]
    random.Random(1).shuffle(labelled)
    return labelled


@pytest.mark.parametrize("alpha", [1.0, 0.1])
def test_equals_scikit_learn(alpha, tmp_path):
    documents = paragraphs()
    cut = len(documents) * 2 // 3
    (tmp_path / "model").write_text(train.train(documents[:cut]))
    # the service's definition of a word; for ASCII it equals scikit-learn's default
    vectorizer = CountVectorizer(analyzer=train.words)
    counts = vectorizer.fit_transform([text for _, text in documents[:cut]])
    model = MultinomialNB(alpha=alpha).fit(counts, [label for label, _ in documents[:cut]])
    service = Service("bayes", config={"alpha": str(alpha)}, assets={"model": tmp_path / "model"})
    texts = [text for _, text in documents[cut:]]
    expected = model.predict_log_proba(vectorizer.transform(texts))
    right = 0
    for (label, text), row in zip(documents[cut:], expected):
        r = service.record({"text": text})
        assert r.status == 0, r.reply
        out = r.record()
        assert np.allclose(out["log_posteriors"], row, rtol=1e-6, atol=1e-6)
        assert out["class"] == model.classes_[row.argmax()]
        assert abs(out["log_posterior"] - row.max()) <= 1e-6
        right += out["class"] == label
    assert right > 0.6 * len(texts), f"{right} of {len(texts)}"
    service.close()


def test_learning_equals_scikit_learn(tmp_path):
    documents = paragraphs()
    cut = len(documents) // 3
    (tmp_path / "model").write_text(train.train(documents[:cut]))
    vectorizer = CountVectorizer(analyzer=train.words)
    vectorizer.fit(text for _, text in documents[:cut])
    # two slots, which learn separately
    slots = {b"a": [], b"b": []}
    with Service(
        "bayes",
        {"words": "hash-map", "totals": "ordered-map"},
        {"learn": "told"},
        assets={"model": tmp_path / "model"},
    ) as service:
        for number, (label, text) in enumerate(documents[cut : cut + 120]):
            key = (b"a", b"b")[number % 2]
            learned = slots[key]
            known = documents[:cut] + learned
            counts = vectorizer.transform(t for _, t in known)
            model = MultinomialNB().fit(counts, [of for of, _ in known])
            expected = model.predict_log_proba(vectorizer.transform([text]))[0]
            tell = {"told": label} if number % 3 else {}
            out = service.record({"text": text, **tell}, key).record()
            assert np.allclose(out["log_posteriors"], expected, rtol=1e-6, atol=1e-6)
            if tell:
                learned.append((label, text))
                assert out["learned"] == len(learned)


def test_words_are_those_of_scikit_learn():
    text = "It's a Test_9, (TEST)! x2 -- don't"
    default = CountVectorizer().build_analyzer()(text)
    assert [w.decode() for w in train.words(text)] == default
