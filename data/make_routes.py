#!/usr/bin/env python3
"""Makes nfv-routes.txt: a route table for natv4, prefixes of random addresses with the lengths that
the table of a real router has.

usage: python3 make_routes.py > nfv-routes.txt
"""

import ipaddress
import random

# Routes by length, out of 1,076,791 of a real router: the sums over its three classes of addresses in
# app/test/test_fib_perf.c of DPDK, which has them from a table that was dumped from one.
OF_LENGTH = {
    8: 200, 9: 37, 10: 55, 11: 97, 12: 381, 13: 775, 14: 2104, 15: 3712, 16: 69319, 17: 12983,
    18: 23667, 19: 69068, 20: 62354, 21: 48531, 22: 72355, 23: 85427, 24: 583898, 25: 2654, 26: 5650,
    27: 6467, 28: 7127, 29: 12936, 30: 5999, 31: 13, 32: 982,
}
ROUTES = 12_000
NEXT_HOPS = 64
SEED = 1
# Addresses that are not routed in the Internet, and those of the gateway itself.
NOT_ROUTED = [
    ipaddress.ip_network(n)
    for n in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.2.0/24", "192.168.0.0/16", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
    )
]


def main():
    rng = random.Random(SEED)
    lengths, weights = zip(*OF_LENGTH.items())
    routes = {}
    while len(routes) < ROUTES:
        length = rng.choices(lengths, weights)[0]
        address = rng.getrandbits(32) >> (32 - length) << (32 - length)
        prefix = ipaddress.ip_network((address, length))
        if not any(prefix.overlaps(n) for n in NOT_ROUTED):
            routes[prefix] = rng.randrange(NEXT_HOPS) + 1
    print(f"# {ROUTES} routes made by make_routes.py, seed {SEED}: PREFIX/LEN NEXTHOP")
    for prefix, hop in sorted(routes.items()):
        print(prefix, f"198.51.100.{hop}")


main()
