"""Pydantic AI with its harness: a `FunctionModel` and `StepPersistence(SqliteStepStore)`.

The store uses a connection of the caller. With `database=`, as in its quick start, it opens the file for each
operation, which costs more.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    SqliteStepStore,
    StepPersistence,
    continue_run,
)

from peers import measure, workload


class PydanticHarness(measure.Peer):
    packages = ("pydantic-ai-harness", "pydantic-ai-slim")

    def open(self, folder: Path) -> None:
        self.connection = sqlite3.connect(
            folder / "runs.db", isolation_level=None, check_same_thread=False
        )
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.store_of_steps = SqliteStepStore(connection=self.connection)
        self.agent = Agent(
            FunctionModel(self.answer, model_name="scripted"),
            capabilities=[StepPersistence(store=self.store_of_steps)],
        )
        self.agent.tool_plain(search_orders)
        self.answers: deque[ModelResponse] = deque()
        self.asked = 0
        # The messages of each conversation. A caller that continues a conversation has them in memory.
        self.known: dict[str, list[ModelMessage]] = {}

    def answer(self, _: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        self.asked += 1
        return self.answers.popleft()

    async def store(self, conversation: str, messages: list[workload.Message]) -> None:
        run = f"{conversation}-stored"
        await self.store_of_steps.register_run(RunRecord(run_id=run, conversation_id=conversation))
        stored = [_message(message) for message in messages]
        await self.store_of_steps.save_snapshot(
            ContinuableSnapshot(
                run_id=run, step_index=0, messages=stored, conversation_id=conversation
            )
        )

    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        self.answers = deque(_response(answer) for answer in answers)
        self.asked = 0

    async def run(self, conversation: str) -> str:
        history = self.known.get(conversation)
        if history is None:
            history = await self.load(conversation)
        result = await self.agent.run(
            workload.INPUT, message_history=history, conversation_id=conversation
        )
        return result.output

    async def read(self, conversation: str) -> int:
        self.known[conversation] = await self.load(conversation)
        return len(self.known[conversation])

    async def load(self, conversation: str) -> list[ModelMessage]:
        runs = await self.store_of_steps.list_runs(conversation_id=conversation)
        return await continue_run(self.store_of_steps, run_id=runs[-1].run_id) if runs else []

    def calls(self) -> int:
        return self.asked

    def close(self) -> None:
        self.connection.close()


def search_orders(order: str, fields: list[str], limit: int) -> str:
    """Looks orders up."""
    return workload.RESULT_TEXT


def _message(message: workload.Message) -> ModelMessage:
    match message:
        case workload.Input(text):
            return ModelRequest(parts=[UserPromptPart(text)])
        case workload.Result(id, text):
            return ModelRequest(parts=[ToolReturnPart(workload.TOOL, text, tool_call_id=id)])
        case workload.Call() | workload.Answer():
            return _response(message)


def _response(answer: workload.Call | workload.Answer) -> ModelResponse:
    match answer:
        case workload.Call(id, arguments):
            return ModelResponse(parts=[ToolCallPart(workload.TOOL, arguments, tool_call_id=id)])
        case workload.Answer(text):
            return ModelResponse(parts=[TextPart(text)])


if __name__ == "__main__":
    measure.main(PydanticHarness())
