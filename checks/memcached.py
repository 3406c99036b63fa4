"""A private memcached on a socket in a temporary directory."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

START_TIMEOUT_S = 20
REPLY_TIMEOUT_S = 20


def program() -> str:
    """The installed memcached; without it the test is skipped, except in continuous integration."""
    found = shutil.which("memcached")
    if found is None:
        why = "memcached is not installed: scripts/setup --checks installs it"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    return found


class Memcached:
    """Speaks the text protocol only; `with Memcached() as m:` stops it."""

    def __init__(self):
        # its background threads hold references to items, and it does not pad a number that is referenced
        words = [program(), "-B", "ascii", "-U", "0", "-t", "1", "-o", "no_lru_maintainer,no_lru_crawler"]
        self._dir = tempfile.TemporaryDirectory()
        self._path = Path(self._dir.name) / "socket"
        words += ["-s", str(self._path)]
        if os.geteuid() == 0:  # it refuses to run as root otherwise
            words += ["-u", "root"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(words, stdin=null, stdout=null, stderr=null)
        end = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise RuntimeError(f"memcached does not answer within {START_TIMEOUT_S} s: {words}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return self.ask(b"mn\r\n") == b"MN\r\n"
        except OSError:
            return False

    def ask(self, commands: bytes) -> bytes:
        """The replies to these commands, sent over a new connection."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(REPLY_TIMEOUT_S)
            connection.connect(str(self._path))
            connection.sendall(commands)
            # it executes what it has read, answers, and closes
            connection.shutdown(socket.SHUT_WR)
            replies = b""
            while part := connection.recv(1 << 16):
                replies += part
            return replies

    def close(self):
        """Stops it."""
        self._process.kill()
        self._process.wait()
        self._dir.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
