#!/usr/bin/env python3
"""Makes temperatures.csv from the data of the Python package vega_datasets 0.9.0.

usage: pip download --no-deps vega_datasets==0.9.0
       python3 make_temperatures.py vega_datasets-0.9.0-py3-none-any.whl > temperatures.csv
"""

import csv
import io
import sys
import zipfile

STATIONS = [("san_francisco", "sf-temps.csv"), ("seattle", "seattle-temps.csv")]


def series(wheel, name):
    """Tenths of a degree Celsius by "YYYY/MM/DD HH:MM"."""
    text = wheel.read(f"vega_datasets/_data/{name}").decode()
    return {
        row["date"][:16]: round((float(row["temp"]) - 32) / 1.8 * 10)
        for row in csv.DictReader(io.StringIO(text))
    }


def main():
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        stations = [series(wheel, name) for _, name in STATIONS]
    hours = sorted(set.intersection(*(set(station) for station in stations)))
    print("hour," + ",".join(f"{name}_decidegrees_c" for name, _ in STATIONS))
    for hour, date in enumerate(hours):
        print(",".join(str(n) for n in [hour, *(station[date] for station in stations)]))


main()
