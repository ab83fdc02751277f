"""The figures side by side, and which bounds hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from peers import tower_chat

AT_THE_BEGINNING = 10.0
AFTER_10_000 = {"LangGraph, SqliteSaver with DeltaChannel": 50.0}
AFTER_10_000_OTHERS = 400.0

STATES = ("warm", "cold")


@dataclass
class System:
    """A peer, or tower-chat with one durability: its figures by state and history."""

    name: str
    durability: str | None = None
    synchronous: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    us: dict[tuple[str, int], float] = field(default_factory=dict)
    runs: dict[tuple[str, int], int] = field(default_factory=dict)
    syncs: dict[int, float] = field(default_factory=dict)
    written: dict[int, float] = field(default_factory=dict)

    def compared_with(self) -> str:
        """The durability of ours that is the same or better."""
        if self.durability is not None:
            return self.durability
        if self.syncs:
            return "full" if min(self.syncs.values()) >= 0.9 else "normal"
        return "full" if self.synchronous is not None and self.synchronous >= 2 else "normal"


@dataclass
class Measured:
    """Everything that was measured."""

    ours: dict[str, System]
    peers: list[System]
    date: str

    @classmethod
    def of(cls, lines: Iterable[dict[str, Any]]) -> Measured:
        """Figures out of lines. Of repeated measurements of ours the slowest counts."""
        ours: dict[str, System] = {}
        peers: dict[str, System] = {}
        date = ""
        for line in lines:
            date = max(date, line["date"])
            name = line["peer"]
            if name == tower_chat.NAME:
                durability = line["durability"]
                label = f"tower-chat, SQLite, `{durability.capitalize()}`"
                system = ours.setdefault(durability, System(label, durability))
            else:
                system = peers.setdefault(name, System(name))
            system.versions.update(line.get("versions", {}))
            system.synchronous = line.get("synchronous", system.synchronous)
            state, history = line["state"], line["history"]
            if "us_per_call" in line:
                slowest = system.us.get((state, history), 0.0)
                system.us[state, history] = max(slowest, line["us_per_call"])
                system.runs[state, history] = line.get("runs", 0)
            if "syncs_per_call" in line and state == "warm":
                system.syncs[history] = line["syncs_per_call"]
                system.written[history] = line["bytes_written_per_call"]
        return cls(ours, list(peers.values()), date)

    def factor(self, peer: System, state: str, history: int) -> float | None:
        """How many times the time of ours a peer takes, with the same durability or better."""
        ours = self.ours.get(peer.compared_with())
        theirs = peer.us.get((state, history))
        own = ours.us.get((state, history)) if ours else None
        return theirs / own if theirs and own else None

    def markdown(self) -> str:
        """The table of the README."""
        everybody = [*self.ours.values(), *self.peers]
        histories = sorted({history for system in everybody for _, history in system.us})
        heads = ["stack and store", "compared with", "syncs a call", "written a call"]
        heads += [f"after {history:,}" for history in histories]
        rows = [heads, ["---"] * 4 + ["---:"] * len(histories)]
        for system in everybody:
            is_peer = system in self.peers
            compared = f"`{system.compared_with().capitalize()}`" if is_peer else ""
            row = [system.name, compared, _syncs(system), _written(system)]
            for history in histories:
                time = _time(system.us.get(("warm", history)))
                factor = _factor(self.factor(system, "warm", history)) if is_peer else ""
                row.append(f"{time} ({factor})" if factor else time)
            rows.append(row)
        versions = {
            package: version for peer in self.peers for package, version in peer.versions.items()
        }
        named = ", ".join(f"{package} {version}" for package, version in sorted(versions.items()))
        return f"{_markdown(rows)}\n\nMeasured on {self.date} with {named}."

    def bounds(self) -> str:
        """Which bounds hold, warm, with the cold factor beside."""
        rows = [
            ["peer", "compared with", "after", "bound", "warm", "cold", "runs", "holds"],
            ["---"] * 8,
        ]
        for peer in self.peers:
            after = {0: AT_THE_BEGINNING, 10_000: AFTER_10_000.get(peer.name, AFTER_10_000_OTHERS)}
            for history, bound in after.items():
                warm = self.factor(peer, "warm", history)
                if warm is None:
                    continue
                rows.append(
                    [
                        peer.name,
                        peer.compared_with().capitalize(),
                        f"{history:,}",
                        f">= {bound:g}x",
                        f"{warm:.1f}x",
                        _factor(self.factor(peer, "cold", history)),
                        "/".join(str(peer.runs.get((state, history), 0)) for state in STATES),
                        "yes" if warm >= bound else "NO",
                    ]
                )
        return _markdown(rows)


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _factor(factor: float | None) -> str:
    return "" if factor is None else f"{_rounded(factor)}x"


def _time(us: float | None) -> str:
    if us is None:
        return ""
    return f"{_rounded(us)} us" if us < 1_000 else f"{_rounded(us / 1_000)} ms"


def _syncs(system: System) -> str:
    if not system.syncs:
        return ""
    low, high = min(system.syncs.values()), max(system.syncs.values())
    texts = ["0" if value < 0.05 else _rounded(value) for value in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _written(system: System) -> str:
    if not system.written:
        return ""
    ends = (min(system.written), max(system.written))
    texts = [_size(system.written[history]) for history in ends]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _size(size: float) -> str:
    return f"{_rounded(size / 1e6)} MB" if size >= 1e6 else f"{_rounded(size / 1e3)} KB"


def _rounded(value: float) -> str:
    """Two significant digits."""
    if value >= 100:
        digits = len(str(int(value))) - 2
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
