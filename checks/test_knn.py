"""`knn` against scikit-learn's KNeighborsClassifier on scikit-learn's data sets."""

import numpy as np
import pytest
from e3run import Service
from sklearn import datasets
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler


@pytest.mark.parametrize("load", [datasets.load_wine, datasets.load_breast_cancer])
@pytest.mark.parametrize("k", [1, 5, 12])
def test_equals_scikit_learn(load, k, tmp_path):
    data = load()
    x = StandardScaler().fit_transform(data.data)
    # labels in the order of scikit-learn's classes, so that ties are resolved in the same way
    y = np.array([f"class{label}" for label in data.target])
    train, test = np.arange(len(x)) % 3 != 0, np.arange(len(x)) % 3 == 0
    lines = [",".join([label, *map(repr, row)]) for label, row in zip(y[train], x[train].tolist())]
    (tmp_path / "points").write_text("\n".join(lines))
    model = KNeighborsClassifier(n_neighbors=k, algorithm="kd_tree").fit(x[train], y[train])
    service = Service("knn", config={"k": str(k)}, assets={"points": tmp_path / "points"})
    distances, neighbours = model.kneighbors(x[test])
    classes = model.predict(x[test])
    for i, row in enumerate(x[test].tolist()):
        r = service.record({"features": row})
        assert r.status == 0, r.reply
        out = r.record()
        assert out["class"] == classes[i]
        assert np.allclose(out["distances"], distances[i], rtol=1e-6, atol=1e-6)
        assert out["neighbours"] == neighbours[i].tolist()
    service.close()
