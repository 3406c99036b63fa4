"""`ema` against numpy, on series with uneven intervals."""

import numpy as np
from e3run import Service

T_S = 5400.0


def average(times, values):
    """The average after the last reading as a sum over all readings, each decayed by its age."""
    times, values = np.asarray(times, float), np.asarray(values, float)
    weights = 1 - np.exp(-np.diff(times) / T_S)
    since = np.exp(-(times[-1] - times) / T_S)
    return since[0] * values[0] + np.sum(weights * since[1:] * values[1:])


def test_averages_of_uneven_series():
    seed = 5
    rng = np.random.default_rng(seed)
    with Service("ema", collections={"averages": "hash-map", "samples": "counter"},
                 config={"time-constant-s": str(T_S)}) as service:
        series = {key: ([], []) for key in (b"a", b"b", b"c")}
        for n in range(600):
            key = list(series)[rng.integers(3)]
            times, values = series[key]
            step = int(rng.exponential(2000)) - 200
            time = (times[-1] if times else 1_700_000_000) + step
            value = float(20 + 15 * np.sin(time / 13_000) + rng.normal())
            said = service.record({"value": value, "time": time, "n": n}, key=key).record()
            if not times or time > times[-1]:  # else late, and not taken
                times.append(time)
                values.append(value)
            naive = average(times, values)
            assert abs(said["ema"] - naive) <= 1e-6 * max(1, abs(naive)), f"seed {seed}, reading {n}"
            assert said == {"value": value, "time": time, "n": n, "ema": said["ema"], "samples": len(times)}
        for key, (times, values) in series.items():
            answer = service.record({"op": "get"}, key=key).record()
            assert answer["time"] == times[-1] and answer["samples"] == len(times) > 100
            assert abs(answer["ema"] - average(times, values)) <= 1e-6
        assert service.record({"op": "get"}, key=b"never").status == 2
