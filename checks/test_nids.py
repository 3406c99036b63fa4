"""nids against a matcher that tries every rule on every packet, with packets made by scapy."""

import ipaddress
import random

import pytest
from e3run import Service
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.packet import Raw

WORDS = [b"GET ", b"/etc/passwd", b"cmd.exe", b"<script>", b"SELECT", b"union", b"\x90\x90\x90", b"User-Agent: "]


def make_rule(choose: random.Random, sid: int) -> tuple[str, dict]:
    """A rule as text and as conditions."""
    proto = choose.choice(["ip", "tcp", "udp", "icmp"])
    net = choose.choice([None, "10.0.0.0/25", "10.0.0.128/25", "10.0.0.0/8"])
    port = choose.choice([None, (80, 80), (1, 1023), (1024, 65535)])
    contents = []
    for _ in range(choose.randrange(1, 4)):
        word = choose.choice(WORDS)
        start = choose.randrange(len(word))
        part = word[start : start + choose.randrange(1, len(word) + 1)]
        contents.append(
            {
                "bytes": part,
                "nocase": choose.random() < 0.5,
                "negated": choose.random() < 0.15,
                "offset": choose.choice([0, 0, 0, 5, 30]),
                "depth": choose.choice([None, None, len(part), len(part) + 40]),
            }
        )
    options = [f'msg:"rule {sid}"']
    for c in contents:
        text = "".join(f"|{byte:02x}|" for byte in c["bytes"])
        options.append(f'content:{"!" if c["negated"] else ""}"{text}"')
        if c["nocase"]:
            options.append("nocase")
        if c["offset"]:
            options.append(f"offset:{c['offset']}")
        if c["depth"]:
            options.append(f"depth:{c['depth']}")
    options.append(f"sid:{sid}")
    ports = "any" if port is None else f"{port[0]}:{port[1]}"
    line = f"alert {proto} any any -> {net or 'any'} {ports} ({'; '.join(options)};)"
    return line, {"proto": proto, "net": net, "port": port, "contents": contents, "sid": sid}


def occurs(payload: bytes, c: dict) -> bool:
    end = len(payload) if c["depth"] is None else c["offset"] + c["depth"]
    window, wanted = payload[c["offset"] : end], c["bytes"]
    if c["nocase"]:  # ASCII letters only, as bytes.lower does
        window, wanted = window.lower(), wanted.lower()
    return wanted in window


def matches(rule: dict, packet: IP, payload: bytes) -> bool:
    layer = {"ip": IP, "tcp": TCP, "udp": UDP, "icmp": ICMP}[rule["proto"]]
    if layer not in packet:
        return False
    if rule["net"] and ipaddress.ip_address(packet.dst) not in ipaddress.ip_network(rule["net"]):
        return False
    if rule["port"]:
        first, last = rule["port"]
        if not (TCP in packet or UDP in packet) or not first <= packet.payload.dport <= last:
            return False
    return all(occurs(payload, c) != c["negated"] for c in rule["contents"])


def make_packet(choose: random.Random) -> tuple[IP, bytes]:
    parts = []
    for _ in range(choose.randrange(6)):
        word = choose.choice(WORDS)
        parts.append(choose.choice([word, word.lower(), word.upper(), choose.randbytes(choose.randrange(20))]))
    payload = b"".join(parts)
    dport = choose.choice([53, 80, 8080])
    layer = choose.choice([TCP(sport=9, dport=dport), UDP(sport=9, dport=dport), ICMP()])
    packet = IP(src="10.9.9.9", dst=f"10.0.0.{choose.randrange(256)}") / layer / Raw(payload)
    return IP(bytes(packet)), payload


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("count", [50, 2000])
def test_alerts_are_those_of_every_rule_looked_at(tmp_path, portable, count):
    choose = random.Random(count)
    rules = [make_rule(choose, sid) for sid in range(1, count + 1)]
    asset = tmp_path / "rules"
    asset.write_text("\n".join(line for line, _ in rules) + "\n")
    totals = {}
    with Service(
        "nids", collections={"alerts": "ordered-map"}, assets={"rules": asset}, portable=portable
    ) as service:
        for number in range(150):
            packet, payload = make_packet(choose)
            expected = [rule["sid"] for _, rule in rules if matches(rule, packet, payload)]
            result = service.call(bytes(packet), key=b"%d" % (number % 7))
            answer = result.record()
            assert result.status == 0
            assert (answer["alerts"], answer["sids"]) == (len(expected), expected[:100])
            for sid in expected[:100]:
                totals[sid] = totals.get(sid, 0) + 1
        report = service.record({"op": "report", "limit": 500}).record()
    most = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:500]
    assert report["total"] == sum(totals.values()) > 150
    assert report["rules"] == [[sid, hits, f"rule {sid}"] for sid, hits in most]


def test_a_bad_line_is_named(tmp_path, capfd):
    asset = tmp_path / "rules"
    asset.write_text('alert tcp any any -> any any (sid:1;)\nalert tcp any any (content:"x";)\n')
    try:  # it ends at once, or at its first request if its start took long
        with Service("nids", assets={"rules": asset}) as service:
            assert service.call(b"").error is not None
    except (RuntimeError, BrokenPipeError):
        pass
    assert 'asset "rules": line 2: has 4 words before (' in capfd.readouterr().err
