"""natv4 against scapy, which makes packets and checksums, a naive longest-prefix match, and a route
table that is written here according to the layout in crates/packet/src/routes.rs."""

import ipaddress
import random
import struct

import numpy as np
import pytest
from e3run import Service
from scapy.all import ICMP, IP, TCP, UDP, Raw

SECOND = 1_000_000_000
PUBLIC = ipaddress.ip_network("203.0.113.8/30")
PORTS = range(1024, 65536)
SLOTS = 4096
TABLES = {"mappings": "hash-map", "ports": "hash-map"}


def random_routes(rng, count):
    routes = {}
    while len(routes) < count:
        length = rng.choices([24, rng.randint(16, 23), rng.randint(25, 32), rng.randint(8, 15)], [600, 380, 15, 1])[0]
        prefix = rng.getrandbits(32) >> (32 - length) << (32 - length)
        routes[(length, prefix)] = 0xC0000200 + rng.randrange(250)
    return routes


def naive(routes, address):
    for length in range(32, -1, -1):
        hop = routes.get((length, address >> (32 - length) << (32 - length) if length else 0))
        if hop is not None:
            return str(ipaddress.ip_address(hop))
    return None


def dir24(routes):
    hops = sorted(set(routes.values()))
    number = {hop: i + 1 for i, hop in enumerate(hops)}
    first = np.zeros(1 << 24, dtype="<u2")
    blocks = []
    for (length, prefix), hop in sorted(routes.items()):
        if length <= 24:
            first[prefix >> 8 : (prefix >> 8) + (1 << (24 - length))] = number[hop]
            continue
        entry = int(first[prefix >> 8])
        if not entry & 0x8000:
            blocks.append(np.full(256, entry, dtype="<u2"))
            entry = 0x8000 | (len(blocks) - 1)
            first[prefix >> 8] = entry
        low = prefix & 255
        blocks[entry & 0x7FFF][low : low + (1 << (32 - length))] = number[hop]
    header = b"E3DIR248" + struct.pack("<III", len(hops), len(blocks), len(routes))
    table = bytes(4) + b"".join(struct.pack(">I", hop) for hop in hops)
    parts = [header.ljust(64, b"\0"), table.ljust(32768 * 4, b"\0"), first.tobytes()]
    return b"".join(parts + [block.tobytes() for block in blocks])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    routes = random_routes(random.Random(7), 50_000)
    path = tmp_path_factory.mktemp("routes") / "routes.dir24"
    path.write_bytes(dir24(routes))
    return routes, path


def nat(table, **config):
    config = {"public": str(PUBLIC), **config}
    return Service("natv4", collections=TABLES, config=config, assets={"routes": table[1]})


def slot_of(key):
    h = 0xCBF29CE484222325
    for byte in key:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD % 2**64
    return (h ^ h >> 33) % SLOTS


KEYS = {}


def key_of(slot):
    number = len(KEYS)
    while slot not in KEYS:
        key = struct.pack("<I", number)
        KEYS.setdefault(slot_of(key), key)
        number += 1
    return KEYS[slot]


def owner(address, port):
    index = int(ipaddress.ip_address(address)) - int(PUBLIC.network_address)
    return ((port - PORTS[0]) * PUBLIC.num_addresses + index) % SLOTS


def forwarded(packet):
    """The same packet after one more hop (RFC 1812)."""
    copy = IP(bytes(packet))
    copy.ttl -= 1
    return summed(copy)


def summed(packet):
    """The same packet with lengths and checksums computed by scapy."""
    copy = IP(bytes(packet))
    del copy.chksum
    if copy.haslayer(TCP):
        del copy[TCP].chksum
    elif copy.haslayer(UDP):
        del copy[UDP].chksum
    elif copy.haslayer(ICMP):
        del copy[ICMP].chksum
    return bytes(copy)


def ends(packet):
    """Source and destination port of a packet, or the identifier."""
    if packet.haslayer(ICMP):
        return packet[ICMP].id, packet[ICMP].id
    return packet.sport, packet.dport


def test_routes_equal_the_naive_match(table):
    routes, _ = table
    rng = random.Random(1)
    edges = [p + rng.choice([-1, 0, (1 << (32 - n)) - 1, 1 << (32 - n)]) for n, p in rng.sample(list(routes), 1500)]
    with nat(table) as service:
        found = 0
        for address in edges + [rng.getrandbits(32) for _ in range(500)]:
            address %= 2**32
            result = service.record({"op": "route", "address": str(ipaddress.ip_address(address))})
            hop = result.record()["next-hop"] if result.status == 0 else None
            assert hop == naive(routes, address), ipaddress.ip_address(address)
            found += hop is not None
        assert 500 < found < 2000


def test_packets_come_back_with_right_checksums(table):
    routes, _ = table
    rng = random.Random(2)
    reachable = [p + rng.randrange(1 << (32 - n)) for n, p in rng.sample(list(routes), 40)]
    mapped = {}
    with nat(table) as service:
        for step in range(600):
            inside = f"10.0.0.{rng.randrange(1, 6)}"
            port = rng.randrange(2000, 2004)
            outside = str(ipaddress.ip_address(rng.choice(reachable)))
            payload = rng.randbytes(rng.randrange(60))
            kind = rng.choice(["tcp", "udp", "icmp"])
            packet = IP(src=inside, dst=outside, ttl=rng.randrange(2, 256), tos=rng.randrange(256), id=step) / {
                "tcp": TCP(sport=port, dport=443, seq=rng.getrandbits(32), options=[("MSS", 1460)]),
                "udp": UDP(sport=port, dport=53),
                "icmp": ICMP(type=8, id=port, seq=step),
            }[kind] / Raw(payload)
            key = inside.encode()
            result = service.call(bytes(packet), key, now=step * SECOND // 100)
            assert result.status == 0, result
            answer = result.record()
            out = IP(answer["packet"])
            assert bytes(out) == summed(out), (step, kind)
            assert out.ttl == packet.ttl - 1
            assert answer["next-hop"] == naive(routes, int(ipaddress.ip_address(outside)))
            public = (out.src, ends(out)[0])
            assert ipaddress.ip_address(out.src) in PUBLIC and public[1] in PORTS
            assert (answer["source"], answer["source-port"]) == public
            assert len(out) == len(packet) and bytes(out).endswith(payload)
            # one inside port has one public port for all destinations, and no other has it
            assert mapped.setdefault((kind, inside, port), public) == public
            assert owner(*public) == slot_of(key)

            back = IP(src=outside, dst=out.src, ttl=rng.randrange(2, 256)) / {
                "tcp": TCP(sport=443, dport=public[1], flags="SA"),
                "udp": UDP(sport=53, dport=public[1]),
                "icmp": ICMP(type=0, id=public[1], seq=step),
            }[kind] / Raw(payload)
            result = service.call(bytes(back), key_of(owner(*public)), now=step * SECOND // 100)
            assert result.status == 0, result
            home = IP(result.record()["packet"])
            assert home.ttl == back.ttl - 1
            assert bytes(home) == summed(home) and home.dst == inside and ends(home)[1] == port
        assert len(set((kind, public) for (kind, *_), public in mapped.items())) == len(mapped)


def test_packets_without_time_to_live_are_dropped(table):
    routes, _ = table
    outside = str(ipaddress.ip_address(next(iter(routes))[1]))
    with nat(table) as service:
        for seconds, ttl in enumerate([0, 1, 2, 255, 1]):
            packet = IP(src="10.0.0.1", dst=outside, ttl=ttl) / UDP(sport=5, dport=53) / Raw(b"x" * ttl)
            result = service.call(bytes(packet), b"k", now=seconds * SECOND)
            if ttl < 2:
                assert result.status == 3 and result.reply.startswith(b"packet: time to live is %d, must be at least 2" % ttl)
                report = service.record({"op": "report"}, b"k", now=seconds * SECOND).record()
                assert report["udp"] == (1 if seconds > 2 else 0)
                continue
            out = IP(result.record()["packet"])
            moved = IP(bytes(packet))
            moved.src, moved[UDP].sport = out.src, out[UDP].sport
            assert bytes(out) == forwarded(moved)
            for back_ttl in (ttl, 1, 0):
                back = IP(src=outside, dst=out.src, ttl=back_ttl) / UDP(sport=53, dport=out[UDP].sport)
                result = service.call(bytes(back), key_of(owner(out.src, out[UDP].sport)), now=seconds * SECOND)
                assert result.status == (0 if back_ttl > 1 else 3)
                if back_ttl > 1:
                    home = IP(bytes(back))
                    home.dst, home[UDP].dport = "10.0.0.1", 5
                    assert result.record()["packet"] == forwarded(home)


def test_mappings_end_when_idle(table):
    routes, _ = table
    length, prefix = next(iter(routes))
    outside = str(ipaddress.ip_address(prefix))
    with nat(table, **{"idle-udp-s": 100}) as service:
        packet = bytes(IP(src="10.0.0.1", dst=outside) / UDP(sport=5, dport=53))
        out = IP(service.call(packet, b"k", now=0).record()["packet"])
        back = bytes(IP(src=outside, dst=out.src) / UDP(sport=53, dport=out.sport))
        key = key_of(owner(out.src, out.sport))
        assert service.call(back, key, now=100 * SECOND).status == 0
        assert service.call(back, key, now=113 * SECOND).status == 2
        assert service.call(bytes(IP(src="9.9.9.9", dst=outside) / UDP())).status == 3
        assert service.call(packet[:27], b"k").reply == b"packet: length is 28, must be 20..=27"
