"""ipsec against scapy's IPsec: each opens what the other sealed."""

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from ipaddress import IPv4Address

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from e3run import Service, program
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import Raw

MASTER = bytes(range(40))
SOURCE, DESTINATION = "192.0.2.1", "198.51.100.2"
SPI = 4096


def slot_of(key: bytes) -> int:
    """Slot of a key, as in docs/abi.md."""
    mask = 2**64 - 1
    h = 0xCBF29CE484222325
    for byte in key:
        h = ((h ^ byte) * 0x100000001B3) & mask
    h ^= h >> 33
    h = (h * 0xFF51AFD7ED558CCD) & mask
    h ^= h >> 33
    return h % 4096


def derive(label: bytes, spi: int, epoch: bytes, length: int, master: bytes) -> bytes:
    """What both ends derive from the secret, as documented in the head of the service."""
    ends = IPv4Address(SOURCE).packed + IPv4Address(DESTINATION).packed
    info = label + spi.to_bytes(4, "big") + ends
    return HKDF(SHA256(), length, salt=epoch, info=info).derive(master)


def association(spi: int, epoch: bytes, master: bytes = MASTER) -> SecurityAssociation:
    """The same association in scapy."""
    keys = derive(b"e3 ipsec keys", spi, epoch, 36, master)
    return SecurityAssociation(
        ESP,
        spi=spi,
        crypt_algo="AES-CBC",
        crypt_key=keys[:16],
        auth_algo="HMAC-SHA1-96",
        auth_key=keys[16:],
        tunnel_header=IP(src=SOURCE, dst=DESTINATION),
    )


def epoch_of(service: Service, key: bytes, spi: int) -> bytes:
    """The epoch that the sender reports, with its proof."""
    said = service.record({"op": "report"}, key).record()
    epoch = bytes.fromhex(said["epoch"])
    assert bytes.fromhex(said["proof"]) == derive(b"e3 ipsec epoch", spi, epoch, 16, MASTER)
    return epoch


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
    collection = {"out": {"sequences": "hash-map"}, "in": {"windows": "hash-map"}}[direction]
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
            epoch = epoch_of(service, key, spi)
            assert bytes(association(spi, epoch).decrypt(IP(sealed))) == packet


@pytest.mark.parametrize("portable", [False, True])
def test_the_service_opens_what_scapy_sealed(portable):
    with gateway("in", portable) as service:
        associations = {}
        for key, packet in packets(2, 200):
            spi = SPI + slot_of(key)
            if spi not in associations:
                epoch = random.Random(spi).randbytes(16)
                proof = derive(b"e3 ipsec epoch", spi, epoch, 16, MASTER)
                announced = {"op": "accept", "epoch": epoch.hex(), "proof": proof.hex()}
                accepted = service.record(announced, key).record()
                assert accepted == {"spi": spi, "sequence": 0, "received": 0, "epoch": epoch.hex()}
                associations[spi] = association(spi, epoch)
            sealed = bytes(associations[spi].encrypt(IP(packet)))
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
            spi = SPI + slot_of(key)
            for service in (fast, slow):
                [(_, _, sealed)] = service.call(packet, key).sent
                opened = association(spi, epoch_of(service, key, spi)).decrypt(IP(sealed))
                assert bytes(opened) == packet


MANIFEST = f"""
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: tunnel}}
spec:
  objective: {{latency: 1s}}
  ingress: ipsec
  load: {{rateRps: 10, requestBytes: 512}}
  secrets:
    - {{name: master, generate: true}}
  services:
    - name: ipsec
      module: ipsec.wasm
      stateful: true
      shards: 4
      replicas: 2
      resources: {{cpu: 0.01, memory: 32Mi}}
      accelerators: [aes-cbc, hmac-sha1, hmac-sha256]
      collections:
        - {{name: sequences, kind: hash-map}}
      secrets: [master]
      config: {{direction: out, source: {SOURCE}, destination: {DESTINATION}, spi: "{SPI}", to: echo}}
    - name: echo
      module: echo.wasm
      stateful: false
      resources: {{cpu: 0.01, memory: 16Mi}}
  channels:
    - {{from: ipsec, to: echo}}
"""


PATIENCE_S = 60  # longest wait for a fail-over or a migration


class Tunnel:
    """A cluster that runs the tunnel; `with Tunnel(...) as t:` stops it."""

    def __init__(self, directory):
        self.state = directory / "state"
        self.manifest = directory / "tunnel.yaml"
        self.manifest.write_text(MANIFEST)
        self.master, self.master_file = os.urandom(32), directory / "master"
        self.environment = dict(os.environ, E3_DIR=str(self.state))

    def try_e3(self, *words, lines=None):
        return subprocess.run([program(), *map(str, words)], input=lines, env=self.environment, capture_output=True,
                              text=True, timeout=180)

    def e3(self, *words, lines=None):
        done = self.try_e3(*words, lines=lines)
        assert done.returncode == 0, done
        return done.stdout

    def __enter__(self):
        self.e3("up", "--detach", "--port", "0", "--durability", "memory")
        return self

    def __exit__(self, *_):
        self.e3("down")

    def call(self, lines):
        """Replies to requests, one after another; every one must be handled."""
        answers = self.e3("call", "tunnel", "--timeout", f"{PATIENCE_S}s", "--input", "-",
                          lines="\n".join(map(json.dumps, lines)) + "\n")
        return [json.loads(answer)["reply"] for answer in answers.splitlines()]

    def seal(self, sent):
        """What becomes of packets, each with its key."""
        lines = [{"keyBase64": base64.b64encode(k).decode(), "payloadBase64": base64.b64encode(p).decode()}
                 for k, p in sent]
        return [base64.b64decode(reply["base64"]) for reply in self.call(lines)]

    def deploy(self):
        """Deploys the tunnel with the secret of this test, which is deleted with the application."""
        self.master_file.write_bytes(self.master)
        self.e3("secret", "set", "tunnel", "master", "--file", self.master_file)
        self.e3("deploy", self.manifest, "--wait")

    def epochs(self, keys):
        """The epochs that are reported, by SPI."""
        asked = [{"keyBase64": base64.b64encode(k).decode(), "record": {"op": "report"}} for k in sorted(keys)]
        replies = [reply["record"] for reply in self.call(asked)]
        return {reply["spi"]: bytes.fromhex(reply["epoch"]) for reply in replies}

    def primary(self, shard):
        """Node of the primary of a shard of ipsec."""
        instances = json.loads(self.e3("get", "instances", "-o", "json"))
        [node] = [i["node"] for i in instances if i["instance"] == f"tunnel/ipsec/{shard}" and i["role"] == "primary"]
        return node

    def migrate(self, shard):
        """Moves the primary of a shard of ipsec to any other node that takes it."""
        before = self.primary(shard)
        nodes = [n["name"] for n in json.loads(self.e3("get", "nodes", "-o", "json"))]
        moves = (("migrate", f"tunnel/ipsec/{shard}", "--to", node) for node in nodes if node != before)
        assert any(self.try_e3(*words).returncode == 0 for words in moves)
        assert self.primary(shard) != before

    def kill(self, node):
        """Kills the process of a node, and waits until its successor has joined and all replicas are there again."""
        def incarnation():
            return json.loads(self.e3("get", "nodes", "--node", node, "-o", "json"))[0]["incarnation"]

        before = incarnation()
        process = json.loads((self.state / "run" / f"process-{node}.json").read_text())["pid"]
        os.kill(process, signal.SIGKILL)
        self.until(lambda: incarnation() > before)
        self.until(lambda: json.loads(self.e3("describe", "app", "tunnel", "-o", "json"))["ready"])

    @staticmethod
    def until(condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.02)

    @contextlib.contextmanager
    def traffic(self, streams):
        """Packets from each of these streams without a pause; gives what was sent and what became of it."""
        done, errors, stop = [], [], threading.Event()

        def run(stream):
            try:
                while not stop.is_set():
                    batch = [next(stream) for _ in range(10)]
                    done.extend(zip(batch, self.seal(batch), strict=True))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        try:
            yield done
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not errors, errors


def test_a_cluster_whose_state_is_gone_repeats_no_key_with_an_iv(tmp_path):
    """The same secret, packets and keys, after `delete` and after `down`; a move in between."""
    sent = list(packets(4, 40))

    def run(tunnel, first):
        """Sends all packets, and opens them with the epochs that are reported."""
        sealed = tunnel.seal(sent)
        epochs = tunnel.epochs({key for key, _ in sent})
        master = tunnel.master
        number = {}
        for (key, packet), one in zip(sent, sealed, strict=True):
            esp = IP(one)[ESP]
            assert esp.spi == SPI + slot_of(key)
            number[esp.spi] = number.get(esp.spi, first[esp.spi] if first else 0) + 1
            assert esp.seq == number[esp.spi]
            opened = association(esp.spi, epochs[esp.spi], master).decrypt(IP(one))
            assert bytes(opened) == packet
        return master, epochs, number, [one[28:44] for one in sealed]

    with Tunnel(tmp_path) as tunnel:
        tunnel.deploy()
        runs = [run(tunnel, None)]
        # another node goes on with numbers and epochs
        for shard in range(4):
            tunnel.migrate(shard)
        again = run(tunnel, runs[0][2])
        assert again[:2] == runs[0][:2]
        tunnel.e3("delete", "tunnel")
        tunnel.deploy()
        runs.append(run(tunnel, None))
    with tunnel:
        tunnel.deploy()
        runs.append(run(tunnel, None))
    # the secret is the same and numbers start again: epochs differ, and so do all vectors
    assert len({master for master, *_ in runs}) == 1
    assert len({tuple(sorted(number.items())) for _, _, number, _ in runs}) == 1
    epochs = [epoch for _, all_of, _, _ in runs for epoch in all_of.values()]
    assert len(set(epochs)) == len(epochs)
    ivs = [iv for *_, all_of in [*runs, again] for iv in all_of]
    assert len(set(ivs)) == len(ivs) == 160


def test_fail_over_and_migration_under_traffic_repeat_no_number_under_a_key(tmp_path):
    """Nodes that hold primaries are killed, and shards move, while several clients send."""
    with Tunnel(tmp_path) as tunnel:
        tunnel.deploy()
        # the clients share the keys, and so the associations
        streams = [packets(seed, 1 << 20) for seed in (5, 6, 7)]
        before = tunnel.epochs({b"flow %d" % flow for flow in range(20)})
        with tunnel.traffic(streams) as done:
            def goes_on():
                count = len(done)
                tunnel.until(lambda: len(done) >= count + 60)

            goes_on()
            for shard in range(2):
                tunnel.kill(tunnel.primary(shard))
                goes_on()
                tunnel.migrate(shard)
                goes_on()
        epochs = tunnel.epochs({key for (key, _), _ in done})
        assert epochs == before
        master = tunnel.master
    numbers = {spi: [] for spi in epochs}
    for (key, packet), sealed in done:
        esp = IP(sealed)[ESP]
        assert esp.spi == SPI + slot_of(key)
        numbers[esp.spi].append(esp.seq)
        # under the one key that the association has
        assert bytes(association(esp.spi, epochs[esp.spi], master).decrypt(IP(sealed))) == packet
    for spi, used in numbers.items():
        assert sorted(used) == list(range(1, len(used) + 1)), spi
    ivs = {sealed[28:44] for _, sealed in done}
    assert len(ivs) == len(done) >= 300
