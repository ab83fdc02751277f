#!/usr/bin/env python3
"""Counts the instructions of runs over the store in memory, and of replay, in valgrind's callgrind,
and prints them beside those that are stored. It fails on no ratio: a change that makes the code plainer
may take more instructions.

    benches/instructions.py            prints the report
    benches/instructions.py --renew    stores what was counted

Each count is divided by that of a deep clone of 10,000 messages in the same session, since counts
depend on the compiler and the machine.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "benches" / "instructions.json"

REFERENCE = "clone"
CASES = [
    f"{calls} {mode} {stored}"
    for calls in ("rounds", "single")
    for mode in ("per_run", "per_service_call", "journaled")
    for stored in (10, 10000)
] + ["replay", REFERENCE]


def main():
    renew = sys.argv[1:] == ["--renew"]
    if sys.argv[1:] and not renew:
        sys.exit(__doc__)
    program = build()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        counts = dict(zip(CASES, threads.map(lambda case: count(program, case), CASES)))
    ratios = {case: counts[case] / counts[REFERENCE] for case in CASES}
    if renew:
        stored = {case: round(ratio, 6) for case, ratio in ratios.items()}
        STORED.write_text(json.dumps(stored, indent=4) + "\n")
    stored = json.loads(STORED.read_text())
    if set(stored) != set(CASES):
        sys.exit(f"{STORED} is of other cases: store new ratios with benches/instructions.py --renew")
    print(f"{'case':30} {'instructions':>13} {'of clone':>10} {'stored':>10} {'ratio':>7}")
    for case in CASES:
        ratio = ratios[case] / stored[case]
        print(f"{case:30} {counts[case]:13,} {ratios[case]:10.6f} {stored[case]:10.6f} {ratio:7.3f}")


def build():
    """Builds the program that does the work, and says where it is."""
    command = ["cargo", "build", "--locked", "--release", "--package", "tower-chat-benches",
               "--bin", "counted", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = map(json.loads, built.stdout.splitlines())
    return [it["executable"] for it in messages if it.get("executable")][-1]


def count(program, case):
    """The instructions that a case takes."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
               "--toggle-collect=counted::measured*", program, *case.split()]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    counted = re.search(r"Collected : (\d+)", ran.stdout)
    if ran.returncode != 0 or counted is None or counted[1] == "0":
        sys.exit(f"{' '.join(map(str, command))} failed:\n{ran.stdout}")
    return int(counted[1])


if __name__ == "__main__":
    main()
