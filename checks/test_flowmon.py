"""flowmon against exact counts of the same packets."""

import math
from collections import Counter

import numpy as np
from e3run import Service
from scapy.all import IP, TCP

SECOND = 1_000_000_000
WIDTH, DEPTH, SHARE = 600, 3, 0.02


def packet(flow):
    return bytes(IP(src=f"10.0.{flow // 250}.{flow % 250}", dst="192.0.2.1") / TCP(sport=1000 + flow, dport=443))


def asked(flow):
    return {"source": f"10.0.{flow // 250}.{flow % 250}", "source-port": 1000 + flow,
            "destination": "192.0.2.1", "destination-port": 443, "protocol": 6}


def test_estimates_and_heavy_flows():
    beyond = checked = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        flows = [int(f) for f in rng.zipf(1.2, 6000) if f <= 1000][:3000]
        bytes_of = {flow: packet(flow) for flow in set(flows)}
        exact = Counter(flows)
        total = len(flows)
        config = {"width": WIDTH, "depth": DEPTH, "share": SHARE, "seed": seed, "window-s": 60}
        with Service("flowmon", {"cells": "counter", "heavy": "ordered-map"}, config) as monitor:
            for flow in flows:
                result = monitor.call(bytes_of[flow], str(flow % 37).encode(), now=10 * SECOND)
                assert result.status == 0
            report = monitor.record({"op": "report"}, now=11 * SECOND).record()
            assert report["packets"] == total and report["window"] == 0
            heavy = {row[1] - 1000: row[5] for row in report["heavy"]}
            for flow, count in exact.items():
                if count > SHARE * total:
                    assert heavy[flow] >= count, (seed, flow)
            for flow, estimate in heavy.items():
                assert estimate > SHARE * total
                assert exact[flow] > (SHARE - math.e / WIDTH) * total, (seed, flow)
            assert [row[5] for row in report["heavy"]] == sorted(heavy.values(), reverse=True)
            for flow in range(1, 1001, 7):
                query = {"op": "report", **asked(flow)}
                estimate = monitor.record(query, now=12 * SECOND).record()["estimate"]
                assert estimate >= exact[flow]
                checked += 1
                beyond += estimate - exact[flow] > math.e / WIDTH * total
            # the next window begins at zero; the last one can be queried
            now = 61 * SECOND
            assert monitor.record({"op": "report"}, now=now).record()["packets"] == 0
            last = monitor.record({"op": "report", "which": "last"}, now=now).record()
            assert last["packets"] == total and last["heavy"] == report["heavy"]
    print(f"beyond epsilon * N: {beyond} of {checked}, promised at most {math.exp(-DEPTH):.4f} of them")
    assert beyond <= math.exp(-DEPTH) * checked


def test_faults_are_named():
    with Service("flowmon", {"cells": "counter", "heavy": "ordered-map"}) as monitor:
        assert monitor.call(packet(1)[:39]).reply == b"packet: length is 40, must be 20..=39"
        assert monitor.record({"op": "other"}).reply == b'field "op": is "other", must be report'
