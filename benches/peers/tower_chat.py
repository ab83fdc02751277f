"""tower-chat itself, measured by the case `peers` of the benches."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from peers import environment, trace

NAME = "tower-chat"
CASE = "peers"
HISTORIES = (0, 1_000, 10_000)
# What the stores of the case are called here.
STATES = {"cached": "warm", "sqlite": "cold"}


def build() -> Path:
    """The benches, built for release."""
    environment.say("building the benches ...")
    built = subprocess.run(
        [
            "cargo",
            "build",
            "--release",
            "--package",
            "tower-chat-benches",
            "--bin",
            "tower-chat-benches",
            "--message-format",
            "json",
        ],
        cwd=environment.REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    programs = [message["executable"] for message in messages if message.get("executable")]
    return Path(programs[-1])


def measured(program: Path, *, quick: bool) -> list[dict[str, Any]]:
    """The lines of the case, in the words of the peers' lines."""
    environment.say("measuring tower-chat ...")
    command = [str(program), "--case", CASE, *(["--quick"] if quick else [])]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    return [
        {
            "peer": NAME,
            "versions": {},
            "durability": line["durability"],
            "state": STATES[line["store"]],
            "history": line["history"],
            "us_per_call": line["us_per_call"],
        }
        for line in lines
        if line["case"] == CASE
    ]


def counted(program: Path) -> list[dict[str, Any]]:
    """What each service call asks of the disk."""
    environment.say("counting what tower-chat asks of the disk ...")
    command = [str(program), "--case", CASE, "--quick"]
    # The case keeps its files beside the program.
    disk = trace.counted(
        command, program.parent, cwd=environment.REPOSITORY, environment=environment.variables()
    )
    lines = []
    for name, per_call in disk.items():
        durability, store, history = name.split("-")
        lines.append(
            {
                "peer": NAME,
                "durability": durability,
                "state": STATES[store],
                "history": int(history),
                "syncs_per_call": per_call.syncs,
                "bytes_written_per_call": per_call.written,
            }
        )
    return lines
