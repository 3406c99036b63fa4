#!/usr/bin/env python3
"""A payment server for docs/workflows.md. Python's standard library is enough.

Usage: payments.py PORT

PUT /charges/ORDER with an amount in cents charges it, once: 201, or 402 for an amount of 402, or 410 if the
charge was voided. DELETE /charges/ORDER voids it, charged or not: 200. GET /charges shows all.
"""

import http.server
import json
import sys

CHARGES = {}
VOID = "void"


class Payments(http.server.BaseHTTPRequestHandler):
    """Charges by order: an amount, or void."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, CHARGES)

    def do_PUT(self):
        amount = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if CHARGES.get(self.path) == VOID:
            return self.answer(410, "was voided")
        if amount == "402":
            return self.answer(402, "declined")
        CHARGES[self.path] = amount
        return self.answer(201, "charged")

    def do_DELETE(self):
        CHARGES[self.path] = VOID
        self.answer(200, "voided")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    address = ("127.0.0.1", int(sys.argv[1]))
    http.server.ThreadingHTTPServer(address, Payments).serve_forever()
