"""The HTTP APIs against their descriptions, with independent tools.

openapi-spec-validator validates both documents. Schemathesis generates valid and invalid requests from them and
compares every answer of a real controller and of a real node with its description.
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
EXAMPLES_MAX = 3  # of each of the controller's operations and phase
NODE_EXAMPLES_MAX = 50  # a node has one operation to speak of
TIME_MAX_S = 60  # of a command
TOOL_TIME_MAX_S = 180  # of Schemathesis
APP = "hello"
NODE = "s1-host"  # of the topology 1x-type1

# Checks that do not hold for an operation, and why.
EXCLUDED = {
    # The manifest is YAML inside a string: no schema says which strings are applications.
    "deployApp": ["positive_data_acceptance"],
    # The same of a topology.
    "addNodes": ["positive_data_acceptance"],
    # The schema does not have the names and bounds of the settings.
    "setOrchestrator": ["positive_data_acceptance"],
    # Schemathesis also writes integers as 7.0, which the parser does not read as integers.
    "joinCluster": ["positive_data_acceptance"],
    "raiseFormat": ["positive_data_acceptance"],
    "createToken": ["positive_data_acceptance"],
    # A schema does not know which nodes report, nor the current incarnation.
    "reportNode": ["positive_data_acceptance"],
}


# Of the operation callApplication, which comes last.
NODE_SETTINGS = """\
# Every HTTP server ignores headers that it does not know.
generation.allow-extra-parameters = false
# An Idempotency-Key is refused for a second request, and a deadline of 1 ms may pass.
checks.positive_data_acceptance.expected-statuses = ["2xx", 422, 504]
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 504]
"""


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
        """Runs a command on the cluster and returns its output."""
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


def configuration(tokens, real, excluded):
    """Configuration of Schemathesis: tokens, real names for parameters, exclusions."""
    lines = [f"[auth.openapi.{scheme}]\nbearer = {json.dumps(token)}" for scheme, token in tokens.items()]
    for operation in sorted(real.keys() | excluded.keys()):
        lines.append(f'[[operations]]\ninclude-operation-id = "{operation}"')
        values = [f"{name} = {json.dumps(v)}" for name, v in real.get(operation, {}).items()]
        if values:
            lines.append(f"parameters = {{ {', '.join(values)} }}")
        lines += [f"checks.{check}.enabled = false" for check in excluded.get(operation, [])]
    return "\n".join(lines) + "\n"


def schemathesis(cluster, document, url, settings, examples_max):
    """Compares the server at a URL with its description."""
    print(f"seed {SEED}")
    file = cluster.dir / "schemathesis.toml"
    file.write_text(settings)
    words = [
        str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(file), "run",
        str(ROOT / "docs" / document), "--url", url,
        "--seed", str(SEED), "--max-examples", str(examples_max),
        "--phases", "coverage,fuzzing", "--generation-database", "none", "--continue-on-failure",
        "--request-timeout", "10", "--no-color", "--warnings", "off",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_TIME_MAX_S, cwd=cluster.dir)
    assert done.returncode == 0, done.stdout + done.stderr
    cluster.e3("call", APP, "--text", "still there")


def test_controller_answers_as_described():
    module = Path(os.environ.get("E3_SERVICES", ROOT / "target" / "services")) / "echo.wasm"
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    real = {
        "getNode": {"name": NODE},
        "getApp": {"name": APP},
        # Not APP: the other operations need it.
        "deleteApp": {"name": "none"},
        "getEndpoints": {"name": APP},
        "getBlob": {"digest": digest},
        "getPlan": {"id": 0, "incarnation": 1, "after": 0},
    }
    with Cluster() as cluster:
        tokens = {"token": cluster.token("token"), "node": cluster.token("node-token")}
        settings = configuration(tokens, real, EXCLUDED)
        schemathesis(cluster, "openapi.json", cluster.url, settings, EXAMPLES_MAX)


def test_node_answers_as_described():
    with Cluster() as cluster:
        [url] = [n["url"] for n in json.loads(cluster.e3("get", "nodes", "-o", "json")) if n["name"] == NODE]
        settings = configuration({"token": cluster.token("token")}, {"callApplication": {"app": APP}}, {}) + NODE_SETTINGS
        schemathesis(cluster, "openapi-ingress.json", url, settings, NODE_EXAMPLES_MAX)
