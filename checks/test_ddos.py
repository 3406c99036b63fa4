"""ddos against entropy that numpy computes from all addresses, and labelled attacks."""

import numpy as np
from e3run import Service
from scapy.all import IP, UDP

SECOND = 1_000_000_000
TABLES = {"addresses": "counter", "seen": "array", "now": "hash-map", "past": "ordered-map"}
TEMPLATE = bytes(IP(src="0.0.0.0", dst="0.0.0.0") / UDP(sport=1, dport=2))


def packet(source, destination):
    # checksums are not read
    return TEMPLATE[:12] + int(source).to_bytes(4, "big") + int(destination).to_bytes(4, "big") + TEMPLATE[20:]


def entropy(addresses):
    _, counts = np.unique(addresses, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum())


def zipf(rng, addresses, count):
    weight = 1 / np.arange(1, addresses + 1)
    return rng.choice(addresses, count, p=weight / weight.sum())


def test_entropy_and_alarms():
    rng = np.random.default_rng(5)
    config = {"window-s": 1, "history": 64, "warmup": 8}
    sources, destinations, attacks, alarms = [], [], [], []
    with Service("ddos", TABLES, config) as ddos:
        for window in range(60):
            count = int(rng.integers(300, 400))
            source = 0x0A000000 + zipf(rng, 500, count)
            destination = 0xC0000200 + zipf(rng, 60, count)
            attack = window > 12 and rng.random() < 0.3
            if attack:  # from anywhere, to one
                flood = int(rng.integers(150, 400))
                source = np.concatenate([source, rng.integers(1, 2**32, flood)])
                destination = np.concatenate([destination, np.full(flood, 0xC0000207)])
            for at, (s, d) in enumerate(zip(source, destination)):
                result = ddos.call(packet(s, d), b"link", now=window * SECOND + at * 1000)
                assert result.status == 0, result
                if at == 0 and window:
                    alarms.append(result.record()["alarm"])
            sources.append(entropy(source))
            destinations.append(entropy(destination))
            attacks.append(bool(attack))
            now = ddos.record({"op": "report"}, now=(window + 1) * SECOND - 1).record()
            assert now["window"] == window and now["packets"] == len(source)
            assert abs(now["source-entropy"] - sources[-1]) < 1e-6
            assert abs(now["destination-entropy"] - destinations[-1]) < 1e-6
        report = ddos.record({"op": "report"}, now=60 * SECOND).record()
        alarms.append(report["alarm"])
    assert report["windows"] == list(range(60)) and report["windows-alarm"] == alarms
    assert np.allclose(report["windows-source-entropy"], sources, atol=1e-6)
    assert np.allclose(report["windows-destination-entropy"], destinations, atol=1e-6)
    ordinary = [h for h, alarm in zip(sources, alarms) if not alarm]
    assert abs(report["source-mean"] - np.mean(ordinary)) < 1e-6
    assert abs(report["source-sigma"] - np.std(ordinary)) < 1e-6
    right = sum(a and b for a, b in zip(attacks, alarms))
    precision, recall = right / max(1, sum(alarms)), right / sum(attacks)
    print(f"attacks {sum(attacks)}: precision {precision:.3f}, recall {recall:.3f}")
    assert precision >= 0.9 and recall >= 0.9


def test_faults_are_named():
    with Service("ddos", TABLES) as ddos:
        assert ddos.call(packet(1, 2)[:27]).reply == b"packet: length is 28, must be 20..=27"
        assert ddos.record({"op": "other"}).reply == b'field "op": is "other", must be report'
