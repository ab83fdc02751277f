"""The workload: the agent of `benches/src/workload.rs`, with the texts of `benches/src/texts.rs`.

A run has 20 tool rounds and a final answer. Stored turns have an input, four rounds and an answer. Call ids are
unique within a conversation, because some frameworks drop a call with the id of an earlier call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 20
CALLS = ROUNDS + 1
MESSAGES_OF_RUN = 2 * CALLS
ROUNDS_OF_STORED_TURN = 4

_SOURCE = Path(__file__).parents[1] / "src" / "texts.rs"


def _text(name: str) -> str:
    """Reads a text from the source of the Rust workload, so that both workloads have the same texts."""
    found = re.search(
        rf'const {name}: &str =\s+(?:"([^"]*)"|r#"(.*?)"#);', _SOURCE.read_text(encoding="utf-8")
    )
    if found is None:
        raise SystemExit(f"error: {_SOURCE} has no text {name}")
    return found[1] or found[2]


TOOL = _text("TOOL")
FINAL_TEXT = _text("FINAL_TEXT")
ARGUMENTS = _text("ARGUMENTS")
RESULT_TEXT = _text("RESULT_TEXT")
INPUT = _text("INPUT")
STORED_INPUT = _text("STORED_INPUT")


@dataclass(frozen=True)
class Input:
    """A message of the user."""

    text: str


@dataclass(frozen=True)
class Call:
    """A message of the model with a tool call."""

    id: str
    arguments: str


@dataclass(frozen=True)
class Result:
    """A message with the result of a tool call."""

    id: str
    text: str


@dataclass(frozen=True)
class Answer:
    """The final answer of the model in a turn."""

    text: str


Message = Input | Call | Result | Answer


def call_id(number: int) -> str:
    """Returns the id of the call with this number, of the same length as in the Rust workload."""
    return f"call_{number:08}"


def parsed(arguments: str) -> Any:
    """Returns the arguments as values, for frameworks that do not store their text."""
    return json.loads(arguments)


def stored_messages(count: int) -> list[Message]:
    """Returns this number of stored messages, which consist of whole turns."""
    messages: list[Message] = []
    turns = _turns()
    while len(messages) < count:
        messages.extend(next(turns))
    if len(messages) != count:
        turn = 2 * ROUNDS_OF_STORED_TURN + 2
        raise SystemExit(
            f"error: a history has whole turns of {turn} messages, not {count} messages"
        )
    return messages


def answers_of_run(stored: int) -> list[Call | Answer]:
    """Returns the answers of the model in a run after this number of stored messages."""
    calls = [Call(call_id(stored + number), ARGUMENTS) for number in range(ROUNDS)]
    return [*calls, Answer(FINAL_TEXT)]


def _turns() -> Iterator[list[Message]]:
    number = 0
    while True:
        turn: list[Message] = [Input(STORED_INPUT)]
        for _ in range(ROUNDS_OF_STORED_TURN):
            turn.append(Call(call_id(number), ARGUMENTS))
            turn.append(Result(call_id(number), RESULT_TEXT))
            number += 1
        turn.append(Answer(FINAL_TEXT))
        yield turn
