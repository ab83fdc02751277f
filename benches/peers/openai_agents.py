"""OpenAI Agents SDK: a scripted `Model` and a `SQLiteSession` in a file."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
)

from peers import measure, workload


class ScriptedModel(Model):
    """Returns prepared answers, one for each call."""

    def __init__(self) -> None:
        self.answers: deque[ModelResponse] = deque()
        self.asked = 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        self.asked += 1
        return self.answers.popleft()

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("answers come whole")


@function_tool(name_override=workload.TOOL, description_override="Looks orders up.")
async def search_orders(order: str, fields: list[str], limit: int) -> str:
    return workload.RESULT_TEXT


class OpenAiAgents(measure.Peer):
    packages = ("openai-agents",)

    def __init__(self) -> None:
        set_tracing_disabled(True)
        self.model = ScriptedModel()
        self.agent = Agent(name="bench", model=self.model, tools=[search_orders])
        self.config = RunConfig(tracing_disabled=True)
        self.sessions: dict[str, SQLiteSession] = {}

    def open(self, folder: Path) -> None:
        self.file = folder / "sessions.db"

    def session(self, conversation: str) -> SQLiteSession:
        if conversation not in self.sessions:
            self.sessions[conversation] = SQLiteSession(conversation, self.file)
        return self.sessions[conversation]

    async def store(self, conversation: str, messages: list[workload.Message]) -> None:
        await self.session(conversation).add_items([_item(message) for message in messages])

    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        self.session(conversation)
        responses = [_output(answer, number) for number, answer in enumerate(answers)]
        self.model.answers = deque(
            ModelResponse(output=[output], usage=Usage(), response_id=None) for output in responses
        )
        self.model.asked = 0

    async def run(self, conversation: str) -> str:
        result = await Runner.run(
            self.agent,
            workload.INPUT,
            session=self.session(conversation),
            max_turns=workload.CALLS,
            run_config=self.config,
        )
        return str(result.final_output)

    async def read(self, conversation: str) -> int:
        return len(await self.session(conversation).get_items())

    def calls(self) -> int:
        return self.model.asked

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()


def _output(answer: workload.Call | workload.Answer, number: int) -> ResponseOutputItem:
    match answer:
        case workload.Call(id, arguments):
            return ResponseFunctionToolCall(
                type="function_call",
                id=f"fc_{id}",
                call_id=id,
                name=workload.TOOL,
                arguments=arguments,
                status="completed",
            )
        case workload.Answer(text):
            part = ResponseOutputText(type="output_text", text=text, annotations=[])
            return ResponseOutputMessage(
                type="message",
                id=f"msg_{number:08}",
                role="assistant",
                status="completed",
                content=[part],
            )


def _item(message: workload.Message) -> Any:
    """Converts a message to the form in which the SDK stores it."""
    match message:
        case workload.Input(text):
            return {"content": text, "role": "user"}
        case workload.Result(id, text):
            return {"call_id": id, "output": text, "type": "function_call_output"}
        case workload.Call() | workload.Answer():
            return _output(message, 0).model_dump(exclude_unset=True)


if __name__ == "__main__":
    measure.main(OpenAiAgents())
