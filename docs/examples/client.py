#!/usr/bin/env python3
"""Sends a request to an application and prints the answer. Python's standard library is enough.

Usage: client.py TOKEN_FILE APP KEY RECORD URL...

The request has an idempotency key, so it is safe to retry it, at any node, until there is an
answer: it takes effect once. RECORD is an object of JSON; the URLs are those of `e3 get nodes`.
"""

import itertools
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


def call(token, urls, app, key, record, patience_s=60.0, idempotency_key=None):
    """Sends a record, which is handled once; returns the service's status and answer."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
        "E3-Deadline-Ms": "5000",
    }
    path = f"/v1/apps/{app}?{urllib.parse.urlencode({'key': key})}"
    body = json.dumps(record).encode()
    end = time.monotonic() + patience_s
    for url in itertools.cycle(urls):
        request = urllib.request.Request(url + path, data=body, headers=headers)
        wait_s = 0.2
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                is_record = answer.headers.get_content_type() == "application/json"
                content = answer.read()
                status = int(answer.headers["E3-Status"])
                return status, json.loads(content) if is_record else content
        except urllib.error.HTTPError as error:
            with error:
                # Retry: 429 overloaded, 503 not a member of the cluster, 504 no answer in time.
                if error.code not in (429, 503, 504):
                    raise RuntimeError(json.load(error)["error"]) from error
                wait_s = float(error.headers.get("Retry-After", wait_s))
        except OSError:
            pass  # the node or its answer is lost: another node has the answer
        if time.monotonic() + wait_s > end:
            raise TimeoutError(f"no answer from {app} within {patience_s} s")
        time.sleep(wait_s)


def main():
    token_file, app, key, record, *urls = sys.argv[1:]
    with open(token_file, encoding="ascii") as file:
        token = file.read().strip()
    status, answer = call(token, urls, app, key, json.loads(record))
    print(status, answer if isinstance(answer, bytes) else json.dumps(answer))


if __name__ == "__main__":
    main()
