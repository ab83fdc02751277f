"""What a measured run asks of the disk, counted by strace between the marks of the run."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers import workload

_CALLS = "fsync,fdatasync,write,pwrite64,access,faccessat,faccessat2,stat,statx,newfstatat"
_MARK = re.compile(r'"/measured-run-(begins|ends)/([^"]+)"')
_SYNC = re.compile(r" f(?:data)?sync\(\d+<(?P<path>[^>]*)>")
_WRITE = re.compile(
    r" p?write(?:64)?\(\d+<(?P<path>[^>]*)>, .*?, (?P<bytes>\d+)(?:, \d+)?(?:\)| <unfinished)"
)


@dataclass
class Disk:
    """What a service call asks of the disk, on average."""

    syncs: float
    written: float


def is_possible() -> bool:
    """Whether there is a strace."""
    return shutil.which("strace") is not None


def counted(
    command: Sequence[str], folder: Path, *, cwd: Path, environment: Mapping[str, str]
) -> dict[str, Disk]:
    """Runs a command that measures; what each run did below a folder, by the name of the run."""
    with tempfile.NamedTemporaryFile(
        "r", dir=folder, prefix="trace-", encoding="utf-8", errors="replace"
    ) as out:
        tracer = ["strace", "-f", "-qq", "-y", "-s", "0", "--seccomp-bpf", "-e", f"trace={_CALLS}"]
        traced = [*tracer, "-o", out.name, *command]
        subprocess.run(traced, cwd=cwd, env=environment, check=True, stdout=subprocess.DEVNULL)
        return counts(out, str(folder.resolve()))


def counts(lines: Iterable[str], folder: str) -> dict[str, Disk]:
    """The counts in the lines of a trace, by the name of the run they are of."""
    totals: dict[str, Disk] = {}
    runs: dict[str, int] = {}
    current: str | None = None
    for line in lines:
        if mark := _MARK.search(line):
            current = mark[2] if mark[1] == "begins" else None
            if current is not None:
                runs[current] = runs.get(current, 0) + 1
                totals.setdefault(current, Disk(0, 0))
        elif current is None:
            continue
        elif (sync := _SYNC.search(line)) and sync["path"].startswith(folder):
            totals[current].syncs += 1
        elif (write := _WRITE.search(line)) and write["path"].startswith(folder):
            totals[current].written += int(write["bytes"])
    calls = {name: count * workload.CALLS for name, count in runs.items()}
    return {
        name: Disk(total.syncs / calls[name], total.written / calls[name])
        for name, total in totals.items()
    }
