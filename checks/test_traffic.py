"""Traffic from files: captures written by scapy and a table written by Python's csv arrive unchanged in an
application; its counts are compared with counts made here."""

import base64
import collections
import csv
import json
import os
import random
import subprocess

import pytest
from e3run import ROOT, program
from scapy.all import ARP, IP, TCP, UDP, Dot1Q, Ether, IPv6, Raw, wrpcap

HOSTS = [f"10.1.0.{n}" for n in range(1, 9)]
SERVER = "9.9.9.9"


@pytest.fixture(scope="module")
def e3(tmp_path_factory):
    state = tmp_path_factory.mktemp("traffic")
    environment = dict(os.environ, E3_DIR=str(state / "state"))

    def run(*words, lines=None):
        done = subprocess.run([program(), *map(str, words)], input=lines, env=environment, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, done
        return done.stdout

    run("up", "--detach", "--port", "0")
    try:
        for app in ("nfv-fin", "rta-ptc"):
            run("deploy", ROOT / "apps" / f"{app}.yaml", "--wait")
        yield run
    finally:
        run("down")


def sent(e3, app, *words):
    report = json.loads(e3("load", app, *words, "-o", "json"))
    ledger = report["ledger"]
    assert report["verdict"] == "not checked" and ledger["accepted"] == ledger["sent"], report
    return ledger["sent"]


def packets(rng, count, first_port):
    """Packets of inside hosts in both directions, and the number of packets of each flow."""
    flows = collections.Counter()
    for _ in range(count):
        host, port, kind = rng.choice(HOSTS), first_port + rng.randrange(3), rng.choice([TCP, UDP])
        ends = [(host, port), (SERVER, 443)]
        if rng.random() < 0.5:
            ends.reverse()
        (source, sport), (destination, dport) = ends
        packet = IP(src=source, dst=destination) / kind(sport=sport, dport=dport)
        flows[host, source, sport, destination, dport, packet.proto] += 1
        yield packet / Raw(bytes(rng.randrange(1400)))
    yield flows


def estimates(e3, flows):
    lines = []
    for host, source, sport, destination, dport, protocol in flows:
        key = base64.b64encode(bytes(map(int, host.split(".")))).decode()
        record = {"op": "report", "at": "flowmon", "source": source, "source-port": sport,
                  "destination": destination, "destination-port": dport, "protocol": protocol}
        lines.append(json.dumps({"keyBase64": key, "record": record}))
    answers = e3("call", "nfv-fin", "--input", "-", lines="\n".join(lines) + "\n").splitlines()
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("kind", ["ethernet", "vlan", "raw", "nanoseconds", "big-endian"])
def test_captures_arrive_whole(e3, tmp_path, kind):
    kinds = ["ethernet", "vlan", "raw", "nanoseconds", "big-endian"]
    rng = random.Random(kind)
    *all, flows = packets(rng, 300, 1000 * (1 + kinds.index(kind)))
    frames, others = [], 0
    for n, packet in enumerate(all):
        frame = packet if kind == "raw" else Ether(type=0x0800) / packet
        if kind == "vlan":
            frame = Ether() / Dot1Q(vlan=1 + n % 9, type=0x0800) / packet
        frame.time = 1_700_000_000 + n / 1000
        frames.append(frame)
        if kind != "raw" and n % 50 == 0:
            frames.append(Ether() / (ARP() if n % 100 else IPv6() / UDP()))
            frames[-1].time = frame.time
            others += 1
    file = tmp_path / "capture.pcap"
    wrpcap(str(file), frames, nano=kind == "nanoseconds", endianness=">" if kind == "big-endian" else "<")
    report = json.loads(e3("load", "nfv-fin", "--from", file, "-o", "json"))
    ledger = report["ledger"]
    assert report["verdict"] == "not checked", report
    assert ledger["sent"] == ledger["accepted"] == len(all), ledger
    assert abs(report["duration_s"] - 0.299) < 1e-6
    assert ("left out" in report["senders"]) == (others > 0)
    for count, answer in zip(flows.values(), estimates(e3, flows), strict=True):
        # never too low; too high if flows share cells, which is rare for so few
        assert count <= answer["reply"]["record"]["estimate"] <= count + 1, answer


def test_rows_arrive_whole(e3, tmp_path):
    rng = random.Random(7)
    tags = [f'tag "{n}", {"ä" * n}' for n in range(5)]
    rows = [rng.choice(tags) for _ in range(200)]
    objects = tmp_path / "tags.jsonl"
    with objects.open("w") as file:
        for tag in rows:
            print(json.dumps({"tag": tag, "features": [rng.random() for _ in range(8)], "text": "x\ny"}), file=file)
    assert sent(e3, "rta-ptc", "--from", objects, "--rate", 1000, "--key-column", "tag") == 200
    for tag, count in collections.Counter(rows).items():
        key = base64.b64encode(tag.encode()).decode()
        line = json.dumps({"keyBase64": key, "record": {"op": "top", "at": "topranker", "k": 20}})
        top = json.loads(e3("call", "rta-ptc", "--input", "-", lines=line + "\n"))["reply"]["record"]
        assert dict(zip(top["top"], top["top_scores"]))[tag] == count
