#!/usr/bin/env python3
"""Compares `plimsoll lab run sync-cost` with fio: same method, block size and layout, in turn.

    cargo build --release && bench/compare-fio.py [--dir DIR] [--rounds 15] > docs/fio-comparison.md

Each round runs every arm once with each tool, arms in random order and the two tools in random
order within an arm, so that drift of the machine hits both alike. Figures are medians over rounds;
a ratio is the median of the rounds' own ratios. Needs fio, and a machine that does nothing else.

What is compared is the time to durable. For a method that comes with the write (O_DSYNC) that is
fio's completion latency of the write. For a method that follows it (fsync), fio keeps two
histograms and never joins them, so the sync's percentile plus the write's median stands in: exact
at neither percentile, but the write is a few per cent of the whole.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "target/release/plimsoll"
# As many records as the files of sync-cost have: growing ones start from nothing in each block.
FILE_WRITES = 1024
FILE_APPENDS = 256

# arm of sync-cost -> options of fio
OVERWRITE = ["--overwrite=1"]
APPEND = ["--overwrite=0", "--fallocate=none"]
ARMS = {
    "fsync/overwritten/4KiB": ["--fsync=1", *OVERWRITE],
    "fdatasync/overwritten/4KiB": ["--fdatasync=1", *OVERWRITE],
    "o_dsync/overwritten/4KiB": ["--sync=dsync", *OVERWRITE],
    "o_direct+o_dsync/overwritten/4KiB": ["--direct=1", "--sync=dsync", *OVERWRITE],
    "o_direct/overwritten/4KiB": ["--direct=1", *OVERWRITE],
    "fsync/append/4KiB": ["--fsync=1", *APPEND],
    "o_dsync/append/4KiB": ["--sync=dsync", *APPEND],
}


def run_fio(options, parent):
    """One run of fio: (p50, p99) of the time to durable in microseconds.

    In a new directory, as each run of the lab is: where a filesystem places a file, and so what it
    costs to grow it, depends on its directory.
    """
    with tempfile.TemporaryDirectory(dir=parent, prefix="fio-") as directory:
        return run_fio_in(directory, options)


def run_fio_in(directory, options):
    # Written over and over; a growing file is a new one each time.
    loops = ["--loops=16", "--unlink_each_loop=1"] if "--overwrite=0" in options else ["--loops=4"]
    writes = FILE_APPENDS if "--overwrite=0" in options else FILE_WRITES
    command = [
        "fio", "--name=compare", f"--directory={directory}", "--ioengine=psync", "--rw=write",
        "--bs=4k", f"--size={writes * 4}k", *loops, "--unlink=1", "--output-format=json",
        "--percentile_list=50:99", *options,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    write = job["write"]["clat_ns"]["percentile"]
    sync = job["sync"]["lat_ns"].get("percentile")
    if sync:
        return tuple((write["50.000000"] + sync[p]) / 1000 for p in ("50.000000", "99.000000"))
    return tuple(write[p] / 1000 for p in ("50.000000", "99.000000"))


def run_plimsoll(arm, directory, seed):
    """One run of sync-cost with one arm: (p50, p99) of the time to durable in microseconds."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            PLIMSOLL, "lab", "run", "sync-cost", "--only", arm, "--dir", directory, "--out", out,
            "--budget", "1s", "--seed", str(seed), "--json",
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)[0]
    [found] = [a for a in result["arms"] if a["name"] == arm]
    summary = found["summaries"][0]
    return summary["p50_ns"] / 1000, summary["p99_ns"] / 1000, result["harness"], result["environment"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default=".", help="directory to measure")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    fio, ours = {arm: [] for arm in ARMS}, {arm: [] for arm in ARMS}
    harness, environment = [], {}
    with tempfile.TemporaryDirectory(dir=args.dir, prefix=".compare-fio-") as directory:
        for number in range(args.rounds):
            for arm in draw.sample(list(ARMS), len(ARMS)):
                for tool in draw.sample(["fio", "plimsoll"], 2):
                    if tool == "fio":
                        fio[arm].append(run_fio(ARMS[arm], directory))
                    else:
                        p50, p99, cost, environment = run_plimsoll(arm, directory, number)
                        ours[arm].append((p50, p99))
                        harness.append(cost["operation_p50_ns"])
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    report(args, fio, ours, harness, environment)


def report(args, fio, ours, harness, environment):
    version = subprocess.run(["fio", "--version"], check=True, capture_output=True, text=True)
    mount, devices = environment["mount"], environment["devices"]
    print("# sync-cost beside fio\n")
    print(f"`bench/compare-fio.py --rounds {args.rounds} --seed {args.seed}`: medians of "
          f"{args.rounds} interleaved rounds, one writer, 4 KiB, microseconds to durable. "
          "Limits: 10 % at p50, 25 % at p99.\n")
    print(f"{environment['cpu']}, {environment['cpus']} CPUs, Linux {environment['kernel']}, "
          f"{mount['filesystem']} on {devices[0]['name']} "
          f"({devices[0]['write_cache']}), {environment.get('virtualisation') or 'no hypervisor seen'}; "
          f"{version.stdout.strip()}, plimsoll {environment['plimsoll']}.\n")
    print("| arm | fio p50 | plimsoll p50 | ratio | fio p99 | plimsoll p99 | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for arm in ARMS:
        cells = []
        for percentile, limit in ((0, 0.10), (1, 0.25)):
            theirs = [sample[percentile] for sample in fio[arm]]
            own = [sample[percentile] for sample in ours[arm]]
            ratio = statistics.median(o / t for o, t in zip(own, theirs))
            verdict = "" if abs(ratio - 1) <= limit else " **over**"
            cells += [f"{statistics.median(theirs):.1f}", f"{statistics.median(own):.1f}",
                      f"{ratio:.2f}{verdict}"]
        print(f"| {arm} | {' | '.join(cells)} |")
    print("\nRatios are medians of the rounds' own ratios, so they are not quotients of the columns.")
    print(f"\nThe harness costs {statistics.median(harness):.0f} ns an operation (an operation that "
          "does nothing, through the same loop, latch and clock; median of the runs).")


if __name__ == "__main__":
    main()
