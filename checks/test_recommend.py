"""`recommend` against numpy: cosine similarities, predictions, and the best item."""

import random

import numpy as np
import pytest
from e3run import Service

COLLECTIONS = {"ratings": "ordered-map"}
TOLERANCE = 1e-6


def order(item):
    """Sorts numbers before texts, and texts by their bytes."""
    return (isinstance(item, str), item.encode() if isinstance(item, str) else item)


class Model:
    """Ratings as a matrix: a row for each user, a column for each item in order, 0 = not rated."""

    def __init__(self):
        self.ratings = {}

    def rate(self, user, item, rating):
        self.ratings.setdefault(user, {})[item] = rating

    def matrix(self):
        self.items = sorted({i for r in self.ratings.values() for i in r}, key=order)
        self.users = sorted(self.ratings)
        return np.array([[self.ratings[u].get(i, 0.0) for i in self.items] for u in self.users])

    def similarities(self):
        matrix = self.matrix()
        norms = np.linalg.norm(matrix, axis=0)
        return matrix.T @ matrix / np.outer(norms, norms)

    def predictions(self, user):
        """Prediction for every item; NaN if there is none, or if the user has rated the item."""
        similar = self.similarities()
        own = self.matrix()[self.users.index(user)]
        rated = own > 0
        weights = similar[:, rated].sum(axis=1)
        with np.errstate(invalid="ignore"):
            predicted = similar[:, rated] @ own[rated] / weights
        predicted[rated] = np.nan
        return predicted

    def best(self, user):
        """The best item; of equals (to nine decimals) the first in order, like `argmax`."""
        predicted = self.predictions(user)
        if np.isnan(predicted).all():
            predicted = self.matrix()[self.users.index(user)]
        at = np.nanargmax(np.round(predicted, 9))
        return self.items[at], predicted[at]


ITEMS = [*range(12), 70_000, *(f"film {n}" for n in range(20)), "é", "zoë"]


def rate(service, model, seed, count, step):
    random.seed(seed)
    for _ in range(count):
        user, item = f"u{random.randrange(25)}", random.choice(ITEMS)
        rating = round(random.randrange(1, 1 + int(10 / step)) * step, 2)
        model.rate(user, item, rating)
        r = service.record({"user": user, "item": item, "rating": rating, "id": 7}, key=user.encode())
        assert r.status == 0, r.reply
        yield user, r.record()


# Steps of one half give many equal predictions, steps of a hundredth few.
@pytest.mark.parametrize("seed,step", [(1, 0.5), (2, 0.01), (3, 5.0)])
def test_equals_numpy(seed, step):
    model, predictions = Model(), 0
    with Service("recommend", collections=COLLECTIONS) as service:
        for user, out in rate(service, model, seed, 250, step):
            item, rating = model.best(user)
            assert out["recommended"] == item, f"seed {seed}"
            assert abs(out["predicted"] - rating) <= TOLERANCE
            assert (out["id"], out["user"]) == (7, user)
        for user in model.users:
            best = service.record({"op": "get", "user": user}, key=user.encode()).record()
            assert best["item"] == model.best(user)[0]
            for item, predicted in zip(model.items, model.predictions(user)):
                r = service.record({"op": "get", "user": user, "item": item}, key=user.encode())
                own = model.ratings[user].get(item)
                if own is not None:
                    assert r.record() == {"item": item, "rating": own, "rated": 1}
                elif np.isnan(predicted):
                    assert r.status == 2, r.reply
                else:
                    assert abs(r.record()["rating"] - predicted) <= TOLERANCE
                    assert (r.record()["item"], r.record()["rated"]) == (item, 0)
                    predictions += 1
    assert predictions > 200, predictions


def test_similarities_equal_numpy():
    model = Model()
    with Service("recommend", collections=COLLECTIONS) as service:
        for _ in rate(service, model, 4, 200, 0.01):
            pass
        similar = model.similarities()
        for at, item in enumerate(model.items):
            out = service.record({"op": "similar", "item": item}).record()
            others = [i for i in range(len(model.items)) if i != at]
            others.sort(key=lambda i: (-round(similar[at, i], 9), i))
            assert out["items"] == [model.items[i] for i in others[:10]]
            assert np.allclose(out["similarities"], similar[at, others[:10]], atol=TOLERANCE)


def test_observations_rate_comfort_programmes():
    """Ratings by ASHRAE's adaptive comfort model, then as for any other item."""
    set_points = [18.0, 19.5, 21.0, 22.5, 24.0, 25.5]
    random.seed(5)
    model, predicted = Model(), 0
    config = {"ratings": "comfort"}
    with Service("recommend", collections=COLLECTIONS, config=config) as service:
        for n in range(300):
            user, time = f"t{random.randrange(9)}", 1_262_304_000 + n * 17_000
            outdoor = random.randrange(-40, 320) / 10
            for i, set_point in enumerate(set_points):
                score = 10 - 4 * abs(set_point - (17.8 + 0.31 * outdoor))
                score = max(0, int(np.floor(score + 0.5)))
                item = time // 3600 % 24 // 6 * 6 + i
                before = model.ratings.get(user, {}).get(item)
                if before is not None:
                    model.rate(user, item, float(max(1, (3 * int(before) + score + 2) // 4)))
                elif score:
                    model.rate(user, item, float(score))
            record = {"user": user, "time": time, "temperature": outdoor}
            out = service.record(record, key=user.encode()).record()
            if user not in model.ratings:
                assert "recommended" not in out
                continue
            item, rating = model.best(user)
            assert out["recommended"] == item, n
            assert abs(out["predicted"] - rating) <= TOLERANCE
            found = service.record({"op": "get", "user": user}, key=user.encode()).record()
            assert (found["item"], found["hour"]) == (item, item // 6 * 6)
            assert found["set_point"] == set_points[item % 6]
            predicted += found["rated"] == 0
    assert predicted > 100, predicted
