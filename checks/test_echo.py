"""The harness itself: the reply equals the request, byte for byte."""

import os

from e3run import Service


def test_every_length_comes_back():
    with Service("echo") as echo:
        for length in (0, 1, 64, 512, 1500, 32 * 1024):
            payload = os.urandom(length)
            result = echo.call(payload)
            assert (result.status, result.reply, result.error) == (0, payload, None)


def test_state_lives_from_request_to_request():
    with Service("getput", collections={"items": "hash-map"}) as items:
        assert items.call(b"12345678first").reply == b""
        assert items.call(b"12345678second").reply == b"first"
        assert items.call(b"short").status == 1
