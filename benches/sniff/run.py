#!/usr/bin/env python3
"""Times of bulk_sniff beside DuckDB's sniff_csv, on generated files.

    benches/sniff/run.py DIRECTORY [CONNINFO]

DIRECTORY is one that the server can read; the files are kept there. Requires psql and the Python package duckdb. Each statement runs five times,
the page cache is warm, and DuckDB has two threads. The last line is machine-readable: the number of the pairs in which bulk_sniff took less time.
"""

import datetime
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import duckdb

RUNS = 5
SIZE = 31_000_000
AIRPORTS = "JFK LAX SFO ORD ATL DEN DFW SEA MIA BOS".split()


def flights(write, size):
    head = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    write(head + "origin,dest,air_time,distance,hour,minute,time_hour\n")
    moment = datetime.datetime(2013, 1, 1)
    while write.size < size:
        moment += datetime.timedelta(seconds=random.randrange(90))
        departs, delay, lasts = moment.hour * 100 + moment.minute, random.randrange(-10, 90), random.randrange(30, 380)
        arrives = (departs + lasts) % 2400
        late = ["NA"] * 4 if random.random() < 0.02 else [departs, delay, arrives, lasts]
        values = [moment.year, moment.month, moment.day, late[0], departs, late[1], late[2], arrives, late[1], "UA"]
        values += [random.randrange(1, 6000), f"N{random.randrange(100, 999)}AA", *random.choices(AIRPORTS, k=2)]
        values += [late[3], random.randrange(100, 2900), moment.hour, moment.minute, f"{moment:%Y-%m-%d %H}:00:00"]
        write(",".join(map(str, values)) + "\n")


def wide(write, size):
    write(",".join(f"c{i}" for i in range(300)) + "\n")
    value = [lambda: str(random.randrange(100000)), lambda: f"{random.random():.6f}", lambda: random.choice(AIRPORTS)]
    while write.size < size:
        write(",".join(value[i % 3]() for i in range(300)) + "\n")


def texts(write, size):
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randrange(2, 10))) for _ in range(5000)]
    write("id,title,body,created_at\n")
    number = 0
    while write.size < size:
        number += 1
        body = ", ".join(random.choices(words, k=random.randrange(20, 160))) + '\nhe said ""no""'
        write(f'{number},"{random.choice(words)}","{body}",2024-01-{number % 28 + 1:02}T10:{number % 60:02}:00Z\n')


def make(path, rows, size):
    if path.exists():
        return
    with path.open("w") as file:
        def write(text):
            write.size += file.write(text)
        write.size = 0
        rows(write, size)


def main():
    directory, conninfo = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    random.seed(7)
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    print("| file | sample | bulk_sniff, ms | sniff_csv, ms |\n|---|---|--:|--:|")
    pairs = less = 0
    for name, rows, size in [("flights", flights, SIZE), ("wide", wide, SIZE), ("texts", texts, SIZE), ("small", flights, 20_000)]:
        path = directory / f"{name}.csv"
        make(path, rows, size)
        for sample, options, more in [("default", "{}", ""), ("all", '{"sample": "all"}', ", sample_size = -1")]:
            call = f"SELECT rows FROM bulk_sniff('{path}', '{options}');\n"
            script = call + "\\timing on\n" + call * RUNS
            said = subprocess.run(["psql", "-qAtX", conninfo], input=script, capture_output=True, text=True, check=True)
            ours = [float(line.split()[1]) for line in said.stdout.splitlines() if line.startswith("Time:")]
            theirs = []
            for _ in range(RUNS + 1):
                start = time.perf_counter()
                connection.execute(f"SELECT * FROM sniff_csv('{path}'{more})").fetchall()
                theirs.append((time.perf_counter() - start) * 1000)
            shown = [f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})" for times in (ours, theirs[1:])]
            print(f"| {name} | {sample} | {shown[0]} | {shown[1]} |", flush=True)
            pairs += 1
            less += statistics.median(ours) < statistics.median(theirs[1:])
    print(f"{less} of {pairs} faster")


main()
