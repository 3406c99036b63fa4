"""`spike` against numpy: the Z-scores of changes, on climate normals with injected spikes."""

import csv

import numpy as np
from e3run import ROOT, Service

HOUR_S, WINDOW, PRIOR_SD, THRESHOLD = 3600, 24, 0.7, 4.5


def expected(hours, values):
    """Scores from the last good reading and all good changes before it."""
    scores, good, changes, outliers = [], (hours[0], values[0]), [], 0
    for hour, value in zip(hours, values):
        intervals = hour - good[0]
        if intervals == 0 or intervals > 6:
            scores.append(0.0)
            good, outliers = (hour, value), 0
            continue
        # the prior: six changes, half of them one standard deviation above zero, half below
        window = np.concatenate([changes[-WINDOW:], [PRIOR_SD, -PRIOR_SD] * 3])
        z = (value - good[1] - intervals * window.mean()) / (window.std() * np.sqrt(intervals))
        scores.append(z)
        if abs(z) < THRESHOLD:
            changes.append((value - good[1]) / intervals)
            good, outliers = (hour, value), 0
        elif outliers == 2:  # the third in a row: a new level
            good, outliers = (hour, value), 0
        else:
            outliers += 1
    return np.array(scores)


def test_scores_on_real_temperatures():
    seed = 8
    rng = np.random.default_rng(seed)
    with open(ROOT / "data/temperatures.csv", newline="") as file:
        rows = list(csv.reader(file))[1:2001]
    collections = {"levels": "hash-map", "windows": "array", "spikes": "ordered-map"}
    config = {"field": "temperature", "window": str(WINDOW), "prior-sd": str(PRIOR_SD), "z": str(THRESHOLD)}
    with Service("spike", collections=collections, config=config) as service:
        for column, key in [(1, b"San Francisco"), (2, b"Seattle")]:
            values = np.array([float(row[column]) / 10 for row in rows]) + rng.normal(0, 0.2, len(rows))
            put = rng.random(len(rows)) < 1 / 40
            values[put] += rng.choice([-1, 1], put.sum()) * rng.uniform(6, 12, put.sum())
            values[1200:] += 15  # a new level
            hours = np.cumsum(rng.choice([1, 2, 9], len(rows), p=[0.95, 0.04, 0.01]))
            naive = expected(hours, values)
            for hour, value, z in zip(hours.tolist(), values.tolist(), naive):
                said = service.record({"temperature": value, "time": hour * HOUR_S}, key=key).record()
                assert abs(said["z"] - z) <= 1e-6 * max(1, abs(z)), f"seed {seed}, hour {hour}"
                assert said["spike"] == int(abs(z) >= THRESHOLD)
            answer = service.record({"op": "spikes", "at": "spike", "from": 0}, key=key).record()
            found = abs(naive) >= THRESHOLD
            assert found.sum() > 30 and answer["more"] == 0
            assert answer["times"] == (hours[found] * HOUR_S).tolist()
            assert answer["values"] == values[found].tolist()
            np.testing.assert_allclose(answer["z"], naive[found], rtol=1e-6)
