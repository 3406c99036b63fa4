"""The HTTP APIs against their descriptions, with tools that know nothing of E3.

openapi-spec-validator reads both documents. Schemathesis makes requests from the description of the
controller, valid and not valid ones, and compares every answer of a real controller with it.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from e3run import ROOT, program

SEED = 20261
EXAMPLES_MAX = 3  # of each operation and phase
TIME_MAX_S = 60
APP = "hello"
NODE = "s1-host"  # of the topology 1x-type1

# Checks that do not hold for an operation, and why.
EXCLUDED = {
    # The manifest is YAML inside a string: no schema says which strings are applications.
    "deployApp": ["positive_data_acceptance"],
    # Schemathesis also writes integers as 7.0, which the parser does not read as integers.
    "joinCluster": ["positive_data_acceptance"],
    # A schema does not know which nodes report, nor which incarnation is the present one.
    "reportNode": ["positive_data_acceptance"],
}


@pytest.mark.parametrize("name", ["openapi.json", "openapi-ingress.json"])
def test_description_is_valid(name):
    document = json.loads((ROOT / "docs" / name).read_text())
    errors = [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]
    assert not errors


class Cluster:
    """A cluster with one application; `with Cluster() as c:` stops it."""

    def __init__(self):
        self._dir = tempfile.TemporaryDirectory()
        self.dir = Path(self._dir.name)

    def e3(self, *words):
        """Runs a command on the cluster and gives its output."""
        done = subprocess.run(
            [program(), *words, "--dir", str(self.dir / "state")],
            capture_output=True, text=True, timeout=TIME_MAX_S, cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def token(self, name):
        """A token of the cluster."""
        return (self.dir / "state" / name).read_text().strip()

    def __enter__(self):
        up = self.e3("up", "--topology", "1x-type1", "--port", "0", "--detach")
        self.url = re.search(r"http://[0-9.:]+", up).group()
        try:
            self.e3("deploy", APP, "--wait")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.e3("down")
        self._dir.cleanup()


def configuration(cluster):
    """What Schemathesis is told: tokens, real names for parameters, exclusions."""
    module = Path(os.environ.get("E3_SERVICES", ROOT / "target" / "services")) / "echo.wasm"
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    lines = [
        f"[auth.openapi.owner]\nbearer = {json.dumps(cluster.token('token'))}",
        f"[auth.openapi.node]\nbearer = {json.dumps(cluster.token('node-token'))}",
    ]
    real = {
        "getNode": {"name": NODE},
        "getApp": {"name": APP},
        # Not APP: the other operations need it.
        "deleteApp": {"name": "none"},
        "getEndpoints": {"name": APP},
        "getBlob": {"digest": digest},
        "getPlan": {"id": 0, "incarnation": 1, "after": 0},
    }
    for operation in sorted(real.keys() | EXCLUDED.keys()):
        lines.append(f'[[operations]]\ninclude-operation-id = "{operation}"')
        values = [f"{name} = {json.dumps(v)}" for name, v in real.get(operation, {}).items()]
        if values:
            lines.append(f"parameters = {{ {', '.join(values)} }}")
        lines += [f"checks.{check}.enabled = false" for check in EXCLUDED.get(operation, [])]
    return "\n".join(lines) + "\n"


def test_controller_answers_as_described():
    print(f"seed {SEED}")
    with Cluster() as cluster:
        settings = cluster.dir / "schemathesis.toml"
        settings.write_text(configuration(cluster))
        words = [
            str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(settings), "run",
            str(ROOT / "docs" / "openapi.json"), "--url", cluster.url,
            "--seed", str(SEED), "--max-examples", str(EXAMPLES_MAX),
            "--phases", "coverage,fuzzing", "--generation-database", "none", "--continue-on-failure",
            "--request-timeout", "10", "--no-color", "--warnings", "off",
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIME_MAX_S,
                              cwd=cluster.dir)
        assert done.returncode == 0, done.stdout + done.stderr
        cluster.e3("call", APP, "--text", "still there")
