"""Tests without other frameworks: `python3 -B -m unittest discover --start-directory benches`."""

from __future__ import annotations

import asyncio
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

from peers import environment, interleaved, measure, model, process, systems, table, trace, workload
from peers.interleaved import Turn
from peers.trace import Window

OURS_TRACED, PEER_TRACED = Turn("ours", True), Turn("peer", True)
OURS, PEER = Turn("ours", False), Turn("peer", False)


def never(_: str = "") -> bool:
    return False


class Order(unittest.TestCase):
    def test_both_are_traced_once_and_then_timed_in_turns(self) -> None:
        order = list(interleaved.turns(3, never, never))
        self.assertEqual(order, [OURS_TRACED, PEER_TRACED, *([OURS, PEER] * 3)])

    def test_a_slow_peer_is_not_repeated_and_ours_is_timed_once(self) -> None:
        order = list(interleaved.turns(5, never, lambda side: side == "peer"))
        self.assertEqual(order, [OURS_TRACED, PEER_TRACED, OURS])

    def test_when_the_time_is_over_both_have_been_timed_equally_often(self) -> None:
        times = iter([False, True])
        order = list(interleaved.turns(5, lambda: next(times), never))
        self.assertEqual(order, [OURS_TRACED, PEER_TRACED, OURS, PEER, OURS, PEER])


class FakeProcess:
    """A substitute for a measured process, which records the commands that it receives."""

    def __init__(self, name: str, told: list[str], us: float) -> None:
        self.name = name
        self.told = told
        self.us = us
        self.server = None
        self.traces: list[Path] = []

    def tell(self, command: str) -> dict[str, Any]:
        self.told.append(f"{self.name} {command}")
        return {}

    def run(self) -> tuple[float, process.Use, Window]:
        self.told.append(f"{self.name} run")
        return self.us, process.Use(self.us / 2, 4_200, 8_400), Window(10.0, 20.0)

    def end(self) -> None:
        self.told.append(f"{self.name} end")


class Pairs(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.told: list[str] = []

    def pair(self, us_of_peer: float) -> interleaved.Pair:
        timed = {side: FakeProcess(side, self.told, 2_100.0) for side in interleaved.SIDES}
        traced = {
            "ours": FakeProcess("traced ours", self.told, 2_100.0),
            "peer": FakeProcess("traced peer", self.told, us_of_peer),
        }
        traced["peer"].traces = [Path(self.folder.name, "peer.trace")]
        traced["peer"].traces[0].write_text(
            "7 9.5 fsync(3) = 0\n7 10.5 fdatasync(3) = 0\n7 19.5 fsync(4) = 0\n"
        )
        pair: Any = interleaved.Pair(timed, traced, Path(self.folder.name))
        return pair

    def test_a_run_is_opened_measured_and_closed_before_the_other_side_is(self) -> None:
        lines = list(self.pair(2_100.0).lines(0, "cold", 1))
        sides = ["traced ours", "traced peer", "ours", "peer"]
        expected = [f"{side} {what}" for side in sides for what in ("open cold", "run", "close")]
        self.assertEqual(self.told, expected)
        self.assertEqual([line["side"] for line in lines], ["ours", "peer", "ours", "peer"])

    def test_a_traced_run_has_no_time_and_a_timed_one_no_syncs(self) -> None:
        pair = self.pair(2_100.0)
        lines = list(pair.lines(0, "warm", 1))
        pair.end()
        self.assertEqual([line.get("us") for line in lines], [None, None, 100.0, 100.0])
        self.assertEqual([line.get("cpu_us") for line in lines], [None, None, 50.0, 50.0])
        syncs = [line.get("syncs") for line in lines]
        self.assertEqual(syncs, [None, 2 / workload.CALLS, None, None])
        self.assertEqual([line["read"] for line in lines], [200.0] * 4)
        self.assertTrue(all(line["sync_us"] > 0 for line in lines))

    def test_the_traced_run_of_a_slow_peer_is_its_time(self) -> None:
        pair = self.pair(21_000_000.0)
        lines = list(pair.lines(0, "warm", 5))
        pair.end()
        self.assertEqual([line["side"] for line in lines], ["ours", "peer", "ours"])
        self.assertEqual([line.get("us") for line in lines], [None, 1_000_000.0, 100.0])


class Model(unittest.TestCase):
    def test_a_call_takes_its_processor_time_and_each_sync(self) -> None:
        self.assertEqual(model.wall_us(80.0, syncs=1.0, latency_us=30.0), 110.0)
        self.assertEqual(model.wall_us(80.0, syncs=2.5, latency_us=3_000.0), 7_580.0)

    def test_the_processor_time_of_a_sync_is_part_of_its_latency(self) -> None:
        self.assertEqual(model.processor_us(cpu_us=100.0, syncs=2.0, sync_cpu_us=40.0), 20.0)
        self.assertEqual(model.processor_us(cpu_us=30.0, syncs=1.0, sync_cpu_us=40.0), 0.0)

    def test_what_does_not_sync_is_the_same_on_every_disk(self) -> None:
        times = {model.wall_us(70.0, 0.0, latency) for latency in model.LATENCIES_US}
        self.assertEqual(times, {70.0})


def lines_of(
    pair: str, side: str, cpu_us: float, syncs: float, history: int = 0, **others: Any
) -> list[dict[str, Any]]:
    """Returns a traced and a timed warm run. A sync takes 1 ms, 40 us of it processor time."""
    common = {"date": "2026-01-02", "pair": pair, "side": side, "history": history}
    common |= {"state": "warm", "read": 10.0, "written": 2e6}
    timed = {"us": cpu_us + syncs * 1_000.0, "cpu_us": cpu_us + syncs * 40.0, **others}
    return [
        {**common, "syncs": syncs, "sync_us": 7.0, "sync_cpu_us": 7.0},
        {**common, "sync_us": 1_000.0, "sync_cpu_us": 40.0, **timed},
    ]


class Table(unittest.TestCase):
    def test_a_factor_is_of_the_model_at_the_latency_of_its_column(self) -> None:
        lines = [
            *lines_of("openai-agents", "ours", 100.0, 1.0),
            *lines_of("openai-agents", "peer", 8_000.0, 1.1),
        ]
        row = table.Measurement(lines).rows()[1]
        self.assertEqual(row.modelled(0, "warm", 30.0), "8.0 ms (62x)")
        self.assertEqual(row.modelled(0, "warm", 3_000.0), "11 ms (3.6x)")

    def test_a_peer_is_compared_with_ours_of_its_own_turns(self) -> None:
        lines = [
            *lines_of("openai-agents", "ours", 100.0, 0.0),
            *lines_of("openai-agents", "peer", 1_000.0, 0.0),
            *lines_of("langgraph", "ours", 500.0, 0.0),
            *lines_of("langgraph", "peer", 1_500.0, 0.0),
        ]
        ours, agents, langgraph = table.Measurement(lines).rows()
        self.assertEqual(ours.modelled(0, "warm", 30.0), "100 us")
        self.assertEqual(agents.modelled(0, "warm", 30.0), "1.0 ms (10x)")
        self.assertEqual(langgraph.modelled(0, "warm", 30.0), "1.5 ms (3.0x)")

    def test_a_peer_stands_below_what_of_ours_it_is_compared_with(self) -> None:
        pairs = ["agent-framework", "dbos", "langgraph"]
        lines = [
            line
            for pair in pairs
            for side in ("ours", "peer")
            for line in lines_of(pair, side, 1.0, 1.0)
        ]
        names = [row.name for row in table.Measurement(lines).rows()]
        own = {key: system.name for key, system in systems.OWN.items()}
        peers = {key: system.name for key, system in systems.PEERS.items()}
        self.assertEqual(names[:2], [own["full"], peers["langgraph"]])
        self.assertEqual(names[2:4], [own["normal"], peers["agent-framework"]])
        self.assertEqual(names[4:], [own["postgres"], peers["dbos"]])

    def test_figures_are_medians_and_the_least_processor_time(self) -> None:
        runs = [
            {"us": us, "cpu_us": cpu_us, "sync_us": sync_us, "sync_cpu_us": sync_cpu_us}
            for us, cpu_us, sync_us, sync_cpu_us in [
                (1.0, 70.0, 5.0, 4.0),
                (9.0, 60.0, 6.0, 3.0),
                (2.0, 90.0, 7.0, 8.0),
            ]
        ]
        figures = table.Figures.of([*runs, {"syncs": 3.0, "sync_us": 100.0, "sync_cpu_us": 1.0}])
        expected = table.Figures(us=2.0, processor_us=60.0 - 3 * 3.0, syncs=3.0, sync_us=6.0)
        self.assertEqual(figures, expected)

    def test_the_model_is_checked_with_the_latency_beside_the_timed_runs(self) -> None:
        lines = lines_of("langgraph", "ours", 400.0, 2.0)
        lines += lines_of("langgraph", "peer", 400.0, 2.0, us=3_600.0)
        check = table.Measurement(lines).check()
        self.assertIn("1.00 to 1.50 times", check)
        self.assertIn("a median of 1.25", check)

    def test_the_readme_has_the_shortest_and_the_longest_history(self) -> None:
        lines = [
            line
            for history, cpu_us in [(0, 100.0), (1_000, 200.0), (10_000, 300.0)]
            for side in ("ours", "peer")
            for line in lines_of("openai-agents", side, cpu_us, 1.0, history)
        ]
        lines[0]["versions"] = {"openai-agents": "1.2.3"}
        text = table.Measurement(lines).short()
        row = "| tower-chat, SQLite, `Full` | 1.0 | 2.0 MB | 100 us | 300 us |  |"
        self.assertIn(f"{row} 130 us | 3.1 ms | 330 us | 3.3 ms |", text)
        self.assertIn("Measured on 2026-01-02 with openai-agents 1.2.3.", text)
        self.assertNotIn("1,000", text)
        full = table.Measurement(lines).full()
        self.assertIn("### After 1,000 messages, warm", full)

    def test_a_peer_of_another_durability_is_an_error(self) -> None:
        syncing = lines_of("agent-framework", "peer", 1.0, 1.0)
        checkpoint = [*lines_of("agent-framework", "ours", 1.0, 0.04)]
        checkpoint += lines_of("agent-framework", "peer", 1.0, 0.0)
        self.assertEqual(table.Measurement(checkpoint).durability_errors(), [])
        lines = [*lines_of("agent-framework", "ours", 1.0, 0.0), *syncing]
        found = table.Measurement(lines).durability_errors()
        wrong = "agent-framework syncs, and is compared with a store that does not"
        self.assertEqual(found, [wrong])
        same = [*lines_of("langgraph", "ours", 1.0, 1.0), *lines_of("langgraph", "peer", 1.0, 9.0)]
        self.assertEqual(table.Measurement(same).durability_errors(), [])


class Trace(unittest.TestCase):
    def test_a_sync_is_of_the_run_in_whose_time_it_began(self) -> None:
        lines = [
            "1 1.000000 fdatasync(3) = 0",
            "1 2.000000 fdatasync(3 <unfinished ...>",
            "2 2.500000 fsync(5) = 0",
            "1 3.000000 <... fdatasync resumed>) = 0",
            "2 6.000000 +++ exited with 0 +++",
            "12 7.250000 fsync(5 <unfinished ...>",
        ]
        windows = [Window(1.5, 4.0), Window(5.0, 8.0), Window(9.0, 9.5)]
        self.assertEqual(trace.syncs(lines, windows), [2, 1, 0])


class Processes(unittest.TestCase):
    def test_a_process_has_used_the_processor_and_read(self) -> None:
        before = process.used(os.getpid())
        Path(__file__).read_bytes()
        after = process.used(os.getpid())
        self.assertGreater(after.cpu_us, before.cpu_us)
        self.assertGreaterEqual(after.read - before.read, Path(__file__).stat().st_size)

    def test_a_process_that_is_gone_has_used_nothing(self) -> None:
        self.assertEqual(process.used(2**22 + 1), process.Use())

    def test_descendants_begin_with_their_roots(self) -> None:
        found = process.with_descendants([os.getppid()])
        self.assertEqual(found[0], os.getppid())
        self.assertIn(os.getpid(), found)


class FakePeer(measure.Peer):
    """Counts messages in memory, or drops them. Each method that may be a coroutine is implemented as a coroutine."""

    packages = ()

    def __init__(self, *, is_in_files: bool, stores: bool = True) -> None:
        self.is_in_files = is_in_files
        self.stores = stores
        self.stored: dict[str, int] = {}
        self.asked = 0

    async def open(self, folder: Path) -> None:
        assert folder.is_dir()

    async def store(self, conversation: str, messages: list[workload.Message]) -> None:
        self.stored[conversation] = len(messages)

    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        self.asked = len(answers)

    async def run(self, conversation: str) -> str:
        if self.stores:
            before = self.stored.get(conversation, 0)
            self.stored[conversation] = before + workload.MESSAGES_OF_RUN
        return workload.FINAL_TEXT

    async def read(self, conversation: str) -> int:
        return self.stored.get(conversation, 0)

    def calls(self) -> int:
        return self.asked


class Responder(unittest.TestCase):
    def told(self, peer: measure.Peer, commands: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
            responder = measure.Responder(runner, peer, Path(folder))
            try:
                for command, *arguments in map(str.split, commands):
                    getattr(responder, command)(*arguments)
            finally:
                responder.end()

    def test_each_run_in_a_server_has_a_conversation_of_its_own(self) -> None:
        peer = FakePeer(is_in_files=False)
        once = ["open warm", "run", "close"]
        self.told(peer, ["prepare 20", *once, *once])
        self.assertEqual(peer.stored["measured-1"], 20 + workload.MESSAGES_OF_RUN)
        self.assertEqual(peer.stored["measured-2"], 20 + workload.MESSAGES_OF_RUN)

    def test_a_peer_in_files_stores_the_history_once(self) -> None:
        peer = FakePeer(is_in_files=True)
        self.told(peer, ["prepare 10", "open cold", "run", "close"])
        runs = {name: workload.MESSAGES_OF_RUN for name in ("one", "another")}
        self.assertEqual(peer.stored, {**runs, "measured": 10 + workload.MESSAGES_OF_RUN})

    def test_a_peer_that_has_not_stored_the_run_ends_the_measurement(self) -> None:
        peer = FakePeer(is_in_files=True, stores=False)
        with self.assertRaisesRegex(SystemExit, "stored messages: 10 instead of 52"):
            self.told(peer, ["prepare 10", "open warm", "run", "close"])


class Systems(unittest.TestCase):
    def test_every_peer_is_compared_with_ours_of_the_same_kind_and_has_a_script(self) -> None:
        for name, peer in systems.PEERS.items():
            with self.subTest(name):
                own = systems.OWN[peer.compared_with]
                self.assertEqual(own.has_server, peer.has_server)
                if peer.module:
                    script = environment.HERE.parent / peer.module[0].replace(".", "/")
                    self.assertTrue(script.with_suffix(".py").is_file())


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
