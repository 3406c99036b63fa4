"""ipsec against scapy's IPsec: each opens what the other has sealed."""

import hashlib
import hmac
import random
import struct

import pytest
from e3run import Service
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import Raw

MASTER = bytes(range(40))
SOURCE, DESTINATION = "192.0.2.1", "198.51.100.2"
SPI = 4096


def slot_of(key: bytes) -> int:
    """Slot of a key, as docs/abi.md has it."""
    mask = 2**64 - 1
    h = 0xCBF29CE484222325
    for byte in key:
        h = ((h ^ byte) * 0x100000001B3) & mask
    h ^= h >> 33
    h = (h * 0xFF51AFD7ED558CCD) & mask
    h ^= h >> 33
    return h % 4096


def association(spi: int) -> SecurityAssociation:
    """The same association in scapy."""

    def derive(purpose):
        label = b"e3 ipsec" + bytes([purpose]) + struct.pack(">I", spi)
        return hmac.new(MASTER, label, hashlib.sha256).digest()

    return SecurityAssociation(
        ESP,
        spi=spi,
        crypt_algo="AES-CBC",
        crypt_key=derive(1)[:16],
        auth_algo="HMAC-SHA1-96",
        auth_key=derive(2)[:20],
        tunnel_header=IP(src=SOURCE, dst=DESTINATION),
    )


def packets(seed: int, count: int):
    """Packets of several protocols and of lengths up to 1500 bytes, and the keys of their flows."""
    choose = random.Random(seed)
    for number in range(count):
        flow = choose.randrange(20)
        layer = [
            TCP(sport=1000 + flow, dport=80, seq=number),
            UDP(sport=1000 + flow, dport=53),
            ICMP(id=flow, seq=number),
        ][flow % 3]
        content = choose.randbytes(choose.randrange(1440))
        packet = IP(src=f"10.0.0.{flow}", dst="10.1.0.1", tos=flow, ttl=60) / layer / Raw(content)
        yield b"flow %d" % flow, bytes(packet)


def gateway(direction: str, portable: bool) -> Service:
    """One end of the tunnel."""
    collection = {"out": {"sequences": "counter"}, "in": {"windows": "hash-map"}}[direction]
    config = {
        "direction": direction,
        "source": SOURCE,
        "destination": DESTINATION,
        "spi": SPI,
        "to": "next",
    }
    return Service(
        "ipsec",
        collections=collection,
        config=config,
        channels=["next"],
        secrets={"master": MASTER},
        portable=portable,
    )


@pytest.mark.parametrize("portable", [False, True])
def test_scapy_opens_what_the_service_sealed(portable):
    with gateway("out", portable) as service:
        last = {}
        for key, packet in packets(1, 200):
            result = service.call(packet, key)
            assert result.error is None
            [(channel, out_key, sealed)] = result.sent
            assert (channel, out_key) == ("next", key)
            outer = IP(sealed)
            spi = outer[ESP].spi
            assert spi == SPI + slot_of(key)
            assert outer[ESP].seq == last.get(spi, 0) + 1
            last[spi] = outer[ESP].seq
            assert (outer.src, outer.dst, outer.proto) == (SOURCE, DESTINATION, 50)
            assert outer.tos == IP(packet).tos
            checksum = outer.chksum
            del outer.chksum
            assert IP(bytes(outer)).chksum == checksum
            assert bytes(association(spi).decrypt(IP(sealed))) == packet


@pytest.mark.parametrize("portable", [False, True])
def test_the_service_opens_what_scapy_sealed(portable):
    with gateway("in", portable) as service:
        associations = {}
        for key, packet in packets(2, 200):
            spi = SPI + slot_of(key)
            sealed = bytes(associations.setdefault(spi, association(spi)).encrypt(IP(packet)))
            result = service.call(sealed, key)
            assert (result.error, result.reply) == (None, None)
            assert result.sent == [("next", key, packet)]
            again = service.call(sealed, key)
            assert (again.status, again.sent) == (3, [])
            forged = bytearray(sealed)
            forged[-1] ^= 1
            assert service.call(bytes(forged), key).sent == []


def test_accelerators_change_nothing():
    with gateway("out", False) as fast, gateway("out", True) as slow:
        for key, packet in packets(3, 100):
            assert fast.call(packet, key).sent == slow.call(packet, key).sent
