"""`kvs` behind a socket, with pymemcache, an independent client of memcached's protocol."""

import random
import socket
import threading

import cbor2
import pytest
from e3run import Service
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

NANOS = 1_000_000_000
STORES = {b"set", b"add", b"replace", b"append", b"prepend", b"cas"}


class Server:
    """Forwards the commands of one connection after another, each as one request."""

    def __init__(self, service):
        self.service, self.now = service, 1_700_000_000 * NANOS
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                while line := lines.readline():
                    words = line.split()
                    if words and words[0] in STORES:
                        line += lines.read(int(words[4]) + 2)
                    r = self.service.call(line, key=b"namespace", now=self.now)
                    connection.sendall(r.reply or b"")


@pytest.fixture
def server():
    kinds = {"items": "hash-map", "expiries": "ordered-map", "versions": "counter"}
    server = Server(Service("kvs", collections=kinds))
    yield server
    server.listener.close()


@pytest.fixture
def client(server):
    client = Client(("127.0.0.1", server.port), default_noreply=False, timeout=10)
    yield client
    client.close()


def test_every_command(client):
    assert client.get("a") is None
    assert client.set("a", b"one\r\ntwo") is True
    assert client.get("a") == b"one\r\ntwo"
    assert client.add("a", "x") is False and client.add("b", "2") is True
    assert client.replace("q", "x") is False and client.replace("a", "1") is True
    assert client.append("a", "0") and client.prepend("a", "2")
    assert client.get_many(["a", "b", "q"]) == {"a": b"210", "b": b"2"}
    value, version = client.gets("a")
    assert value == b"210"
    assert client.cas("a", "5", version) is True
    assert client.cas("a", "6", version) is False
    assert client.cas("q", "6", version) is None
    assert client.incr("a", 7) == 12 and client.decr("a", 20) == 0
    assert client.incr("q", 1) is None
    assert client.delete("a") is True and client.delete("a") is False
    assert client.set_many({"m1": "1", "m2": "2"}) == []
    assert client.delete_many(["m1", "m2"]) is True
    assert client.version().startswith(b"e3-")
    client.set("n", "7", noreply=True)
    assert client.get("n") == b"7"


def test_expiry(server, client):
    client.set("a", "1", expire=10)
    client.set("b", "2", expire=1_700_000_100)
    server.now += 9 * NANOS
    assert client.get("a") == b"1" and client.touch("a", 10) is True
    server.now += 9 * NANOS
    assert client.get("a") == b"1" and client.touch("a", 60) is True
    server.now += 50 * NANOS
    assert client.get("a") == b"1"
    server.now += 50 * NANOS
    assert client.get("a") is None and client.get("b") is None


def test_faults(client):
    with pytest.raises(MemcacheServerError):
        client.flush_all()
    client.set("t", "text")
    with pytest.raises(MemcacheClientError):
        client.incr("t", 1)
    with pytest.raises(MemcacheServerError):
        client.set("big", b"x" * 32_300)
    assert client.get("t") == b"text"


def test_random_commands_against_a_dict(client):
    rng, model = random.Random(3), {}
    for _ in range(1000):
        key, value = f"k{rng.randrange(20)}", str(rng.randrange(1000)).encode()
        match rng.randrange(6):
            case 0:
                assert client.set(key, value)
                model[key] = value
            case 1:
                assert client.add(key, value) == (key not in model)
                model.setdefault(key, value)
            case 2:
                assert client.delete(key) == (model.pop(key, None) is not None)
            case 3:
                there = key in model
                assert client.append(key, value) == there
                if there:
                    model[key] += value
            case 4 if len(model.get(key, b"")) < 19:
                there = model.get(key)
                assert client.incr(key, 5) == (None if there is None else int(there) + 5)
                if there is not None:
                    model[key] = str(int(there) + 5).encode().ljust(len(there))
            case _:
                assert client.get(key) == model.get(key)


@pytest.mark.parametrize("size", [28_699, 28_700, 32_255, 32_256, 32_257])
def test_long_values_by_every_command(server, client, size):
    value = b"x" * size
    if size > 32_256:
        with pytest.raises(MemcacheServerError):
            client.set("a", value)
        return
    assert client.set("a", value) is True and client.get("a") == value
    for command in (b"gat 60 a\r\n", b"gats 60 a\r\n"):  # which pymemcache does not have
        reply = server.service.call(command, key=b"namespace", now=server.now).reply
        assert reply.startswith(b"VALUE a 0 %d" % size) and reply.endswith(b"\r\n" + value + b"\r\nEND\r\n")
    assert client.touch("a", 0) is True and client.replace("a", value) is True
    version = client.gets("a")[1]
    assert client.cas("a", value, version) is True and client.append("a", b"") is True
    assert client.get("a") == value and client.delete("a") is True


@pytest.mark.parametrize("size", [28_699, 28_700, 32_255, 32_256, 32_257])
def test_long_values_as_records(size):
    kinds = {"items": "hash-map", "expiries": "ordered-map", "versions": "counter"}
    value = "x" * size
    with Service("kvs", collections=kinds) as service:
        for op in ("set", "swap"):
            result = service.record({"op": op, "key": "k", "value": value})
            assert result.error is None
            assert result.status == (3 if size > 32_256 or op == "swap" else 0)
        result = service.record({"op": "swap", "key": "new", "value": value})
        assert result.error is None and result.status == (3 if size > 32_256 else 0)
        if size <= 32_256:
            assert service.record({"op": "get", "key": "k"}).record()["value"] == value
            assert service.record({"op": "get", "key": "new"}).record()["value"] == value


def test_records():
    kinds = {"items": "hash-map", "expiries": "ordered-map", "versions": "counter"}
    service = Service("kvs", collections=kinds)
    r = service.record({"op": "set", "key": "k", "value": "v", "id": 1})
    assert r.record() == {"op": "set", "key": "k", "value": "v", "id": 1, "done": True}
    r = service.call(cbor2.dumps({"key": "k"}))
    assert r.record() == {"key": "k", "value": "v", "version": 1, "done": True}


def test_records_of_fields_against_a_dict():
    kinds = {"items": "hash-map", "expiries": "ordered-map", "versions": "counter"}
    config = {"fields": "a, b", "default-op": "swap", "prefix": "was_"}
    rng, model = random.Random(3), {}
    values = [None, True, -7, 2**40, 0.5, "text", b"bytes", ["x", [1, 2.5]], {"n": 1}]
    with Service("kvs", kinds, config) as service:
        for _ in range(500):
            key = f"k{rng.randrange(20)}"
            item = {n: rng.choice(values) for n in ("a", "b") if rng.random() < 0.8}
            said = {"key": key, "c": 1, **item}
            answer = service.record(said, key=key.encode())
            if not item:
                assert answer.status == 1
                continue
            was = model.get(key)
            record = answer.record()
            assert {n: v for n, v in record.items() if n != "version"} == {
                **said,
                **{f"was_{n}": v for n, v in (was or {}).items()},
                "done": was is not None,
            }
            model[key] = item
