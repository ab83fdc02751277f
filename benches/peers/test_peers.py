"""What needs no peer: `python3 -B -m unittest discover --start-directory benches`."""

from __future__ import annotations

import unittest
from pathlib import Path

from peers import table, trace, workload

LINE = {"date": "2026-01-02", "state": "warm", "history": 0}


def ours(durability: str, us: float) -> dict[str, object]:
    return {**LINE, "peer": "tower-chat", "durability": durability, "us_per_call": us}


def theirs(us: float, synchronous: int | None) -> dict[str, object]:
    versions = {"peer": "1.2.3"}
    return {
        **LINE,
        "peer": "A",
        "us_per_call": us,
        "synchronous": synchronous,
        "versions": versions,
    }


def counted(syncs: float) -> dict[str, object]:
    return {**LINE, "peer": "A", "syncs_per_call": syncs, "bytes_written_per_call": 2e6}


class Table(unittest.TestCase):
    def test_a_peer_that_does_not_sync_is_compared_with_normal(self) -> None:
        both = [ours("full", 200.0), ours("normal", 50.0)]
        synced = table.Measured.of([*both, theirs(1_000.0, 2), counted(1.1)])
        self.assertEqual(synced.factor(synced.peers[0], "warm", 0), 5.0)
        unsynced = table.Measured.of([*both, theirs(1_000.0, 2), counted(0.0)])
        self.assertEqual(unsynced.factor(unsynced.peers[0], "warm", 0), 20.0)

    def test_without_counts_the_pragma_decides(self) -> None:
        for synchronous, durability in [(2, "full"), (1, "normal"), (None, "normal")]:
            measured = table.Measured.of([theirs(1_000.0, synchronous)])
            self.assertEqual(measured.peers[0].compared_with(), durability)

    def test_the_slowest_measurement_of_ours_counts(self) -> None:
        lines = [ours("full", 200.0), theirs(1_000.0, 2), ours("full", 250.0)]
        measured = table.Measured.of(lines)
        self.assertEqual(measured.factor(measured.peers[0], "warm", 0), 4.0)
        self.assertIn("| NO |", measured.bounds())

    def test_a_bound_that_is_met_is_said_to_hold(self) -> None:
        measured = table.Measured.of([ours("full", 100.0), theirs(1_000.0, 2)])
        self.assertIn("| yes |", measured.bounds())

    def test_the_table_names_versions_and_rounds(self) -> None:
        text = table.Measured.of(
            [ours("full", 123.0), theirs(45_678.0, 2), counted(1.0)]
        ).markdown()
        self.assertIn("peer 1.2.3", text)
        self.assertIn("| A | `Full` | 1.0 | 2.0 MB | 46 ms (370x) |", text)


class Trace(unittest.TestCase):
    def test_what_is_done_in_the_folder_within_a_run_is_counted(self) -> None:
        lines = [
            "1  fdatasync(3</data/x.db-wal>) = 0",
            '1  access("/measured-run-begins/warm", F_OK) = -1 ENOENT (No such file or directory)',
            '2  pwrite64(3</data/x.db-wal>, ""..., 4096, 24) = 4096',
            '2  write(4</data/log>, ""..., 100 <unfinished ...>',
            '2  write(1</dev/null>, ""..., 7) = 7',
            "2  fdatasync(3</data/x.db-wal>) = 0",
            "2  fsync(5</data> <unfinished ...>",
            '1  access("/measured-run-ends/warm", F_OK) = -1 ENOENT (No such file or directory)',
            '2  pwrite64(3</data/x.db-wal>, ""..., 4096, 24) = 4096',
        ]
        disk = trace.counts(lines, "/data")["warm"]
        self.assertEqual(disk.syncs * workload.CALLS, 2)
        self.assertAlmostEqual(disk.written * workload.CALLS, 4196)


class Scripts(unittest.TestCase):
    def test_every_script_compiles(self) -> None:
        here = Path(__file__).parent
        for script in [here / "run", *here.glob("*.py")]:
            with self.subTest(script.name):
                compile(script.read_text(encoding="utf-8"), script, "exec")


class Workload(unittest.TestCase):
    def test_ids_of_calls_are_unique_within_a_conversation(self) -> None:
        stored = workload.stored_messages(1_000)
        calls = [*stored, *workload.answers_of_run(len(stored))]
        ids = [call.id for call in calls if isinstance(call, workload.Call)]
        self.assertEqual(len(ids), 400 + workload.ROUNDS)
        self.assertEqual(len(set(ids)), len(ids))


if __name__ == "__main__":
    unittest.main()
