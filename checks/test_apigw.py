"""`apigw` against Python's hmac, and its rate limit against token-bucket arithmetic over virtual time."""

import hmac
import random
from fractions import Fraction

import cbor2
import pytest
from e3run import Service

KEY = b"a key of the checks"
START_S = 1_700_000_000
MALFORMED, NOT_FOUND, REFUSED = 1, 2, 3


def gate(portable=False, **config):
    config = {"to": "store,files", "name": "apigw", **config}
    return Service("apigw", collections={"buckets": "hash-map"}, channels=("store", "files"),
                   config=config, secrets={"token-key": KEY}, portable=portable)


def signed(user, expiry=START_S + 100_000, key=KEY, **fields):
    name = user.encode() if isinstance(user, str) else user
    token = hmac.digest(key, name + expiry.to_bytes(8, "big", signed=True), "sha256")
    return {"user": user, "expiry": expiry, "token": token, **fields}


def send(service, record, ns=0, key=None):
    user = record["user"]
    key = key or (user.encode() if isinstance(user, str) else user)
    result = service.record(record, key=key, now=START_S * 10**9 + ns)
    assert result.error is None
    assert (result.status is None) == (len(result.sent) > 0)
    return result


@pytest.mark.parametrize("portable", [False, True])  # with the accelerator and without
def test_tokens_are_those_of_hmac(portable):
    seed = 11
    rng = random.Random(seed)
    with gate(portable, burst="1e9") as service:
        for _ in range(200):
            user = rng.choice([rng.randbytes(rng.randint(1, 200)), "t%05d" % rng.randrange(10**5), "Gerät"])
            expiry = START_S + rng.choice([-(10**9), -1, 0, 1, 60, 10**12])
            record = signed(user, expiry, value=1.5)
            result = send(service, record)
            if expiry <= START_S:
                assert result.status == REFUSED and b"expired" in result.reply
                continue
            assert [channel for channel, _, _ in result.sent] == ["store", "files"]
            for _, _, payload in result.sent:
                assert cbor2.loads(payload) == {"user": user, "value": 1.5}
            # one bit of the token, the expiry, the user or the key
            token = bytearray(record["token"])
            token[rng.randrange(32)] ^= 1 << rng.randrange(8)
            assert send(service, {**record, "token": bytes(token)}).status == REFUSED
            assert send(service, {**record, "expiry": expiry + 1}).status == REFUSED
            assert send(service, signed(user, expiry, key=KEY + b"x")).status == REFUSED
            assert send(service, record, key=b"other").status == MALFORMED


def test_the_rate_is_that_of_a_token_bucket():
    seed, rate, burst = 12, 4.1, 4.5
    rng = random.Random(seed)
    exact = {"a": (Fraction(burst), 0), "b": (Fraction(burst), 0)}
    floats = {"a": (burst, 0), "b": (burst, 0)}
    passed = refused = 0
    with gate(rate=str(rate), burst=str(burst)) as service:
        ns = 0
        for n in range(3000):
            # bursts and silences
            ns += int(rng.expovariate(1) * (60_000_000 if n // 100 % 3 else 300_000_000))
            user = rng.choice("ab")
            kind = {"op": "get", "at": "store"} if rng.random() < 0.2 else {"value": n}
            result = send(service, signed(user, **kind), ns)
            left, at = floats[user]
            left = min(left + (ns - at) / 1e9 * rate, burst)
            true, true_at = exact[user]
            true = min(true + Fraction(ns - true_at, 10**9) * Fraction(rate), Fraction(burst))
            # bound on the rounding error of the gate's double precision
            assert abs(Fraction(left) - true) < Fraction(1, 10**9)
            assert (result.status is None) == (left >= 1), f"seed {seed}, request {n}: {left} permits"
            if left >= 1:
                floats[user], exact[user] = (left - 1, ns), (true - 1, ns)
                passed += 1
                continue
            # a refused request does not change the bucket
            assert result.status == REFUSED
            said = float(result.reply.split(b"next permit in ")[1].removesuffix(b" s"))
            # rounded up: after this wait a request is accepted
            assert 0 <= said - (1 - left) / rate <= 0.000_001_1
            waited = min(left + (ns + round(said * 1e9) - at) / 1e9 * rate, burst)
            assert waited >= 1
            refused += 1
    assert passed > 500 and refused > 500


def test_routes_lead_by_the_longest_prefix():
    with gate(routes="/v1=store, /v1/files=files", burst="1e9") as service:
        for path, way in [("/v1", "store"), ("/v1/x", "store"), ("/v1/files", "files"), ("/v1/files/x", "files"),
                          ("/v1/filesystem", "store"), ("/v2", None), ("/v11", None), ("", None)]:
            result = send(service, signed("t1", path=path))
            assert [channel for channel, _, _ in result.sent] == ([way] if way else [])
            assert result.status == (None if way else NOT_FOUND)
