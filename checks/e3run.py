"""Drives one service, as WebAssembly in the real engine, through `e3 run`."""

import base64
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import cbor2

ROOT = Path(__file__).resolve().parent.parent


def program() -> str:
    """The e3 that was built last, unless E3_PROGRAM names one."""
    named = os.environ.get("E3_PROGRAM")
    if named:
        return named
    built = [ROOT / "target" / profile / "e3" for profile in ("debug", "release")]
    built = [path for path in built if path.exists()]
    if not built:
        raise FileNotFoundError("no e3 in target; build it with: cargo build -p e3-cli")
    return str(max(built, key=lambda path: path.stat().st_mtime))


@dataclass
class Result:
    """The outcome of a request."""

    status: int | None
    reply: bytes | None
    error: str | None
    sent: list[tuple[str, bytes, bytes]] = field(default_factory=list)

    def record(self) -> dict:
        """The reply as a record."""
        return cbor2.loads(self.reply)


class Service:
    """A service with empty collections; `with Service(...) as s:` stops it."""

    def __init__(self, module, collections=None, config=None, channels=(), assets=None, secrets=None,
                 memory="256Mi", portable=False):
        self._files = tempfile.TemporaryDirectory()
        words = [program(), "run", module, "--memory", memory]
        if portable:  # as on a node without accelerators
            words.append("--portable")
        for name, kind in (collections or {}).items():
            words += ["--collection", f"{name}:{kind}"]
        for name, value in (config or {}).items():
            words += ["--set", f"{name}={value}"]
        for name in channels:
            words += ["--channel", f"{name}:64"]
        for name, path in (assets or {}).items():
            words += ["--asset", f"{name}={path}"]
        for name, value in (secrets or {}).items():
            path = Path(self._files.name) / name
            path.write_bytes(value)
            words += ["--secret", f"{name}={path}"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, payload: bytes, key: bytes = b"k", now: int = 0) -> Result:
        """Handles one request; `now` in nanoseconds since the Unix epoch, never decreasing."""
        line = {
            "keyBase64": base64.b64encode(key).decode(),
            "payloadBase64": base64.b64encode(payload).decode(),
            "nowNs": now,
        }
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        text = self._process.stdout.readline()
        if not text:
            raise RuntimeError(f"e3 run ended with code {self._process.wait()}")
        answer = json.loads(text)

        def content(of):
            return base64.b64decode(of["base64"]) if of else None

        sent = [(s["channel"], content(s["key"]), content(s["payload"])) for s in answer["sent"]]
        return Result(answer["status"], content(answer["reply"]), answer["error"], sent)

    def record(self, fields: dict, key: bytes = b"k", now: int = 0) -> Result:
        """Handles one request whose payload is a record."""
        return self.call(cbor2.dumps(fields), key, now)

    def close(self):
        """Stops it."""
        self._process.stdin.close()
        self._process.wait()
        self._files.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
