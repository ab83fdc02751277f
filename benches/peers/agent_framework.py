"""Microsoft Agent Framework: a scripted `BaseChatClient` and a `FileHistoryProvider`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
    tool,
)

from peers import measure, workload


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Returns prepared answers, one for each call, with the layers of a real client except for telemetry."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: deque[ChatResponse] = deque()
        self.asked = 0

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> ChatResponse:
        self.asked += 1
        return self.answers.popleft()


@tool(name=workload.TOOL, description="Looks orders up.", approval_mode="never_require")
def search_orders(order: str, fields: list[str], limit: int) -> str:
    return workload.RESULT_TEXT


class AgentFramework(measure.Peer):
    packages = ("agent-framework-core",)

    def open(self, folder: Path) -> None:
        self.client = ScriptedClient()
        self.provider = FileHistoryProvider(folder)
        self.agent = Agent(
            self.client,
            tools=[search_orders],
            context_providers=[self.provider],
            require_per_service_call_history_persistence=True,
        )
        self.sessions: dict[str, AgentSession] = {}

    def session(self, conversation: str) -> AgentSession:
        return self.sessions.setdefault(conversation, AgentSession(session_id=conversation))

    async def store(self, conversation: str, messages: list[workload.Message]) -> None:
        stored = [_message(message, number) for number, message in enumerate(messages)]
        await self.provider.save_messages(conversation, stored)

    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        self.session(conversation)
        self.client.answers = deque(
            ChatResponse(messages=[_message(answer, number)], finish_reason=_reason(answer))
            for number, answer in enumerate(answers)
        )
        self.client.asked = 0

    async def run(self, conversation: str) -> str:
        return (await self.agent.run(workload.INPUT, session=self.session(conversation))).text

    async def read(self, conversation: str) -> int:
        return len(await self.provider.get_messages(conversation))

    def calls(self) -> int:
        return self.client.asked


def _reason(answer: workload.Call | workload.Answer) -> Any:
    return "tool_calls" if isinstance(answer, workload.Call) else "stop"


def _message(message: workload.Message, number: int) -> Message:
    """Converts a message. Messages of the model have an id, as with real services."""
    match message:
        case workload.Input(text):
            return Message("user", [text])
        case workload.Call(id, arguments):
            call = Content.from_function_call(id, workload.TOOL, arguments=arguments)
            return Message("assistant", [call], message_id=f"msg_{id}")
        case workload.Result(id, text):
            return Message("tool", [Content.from_function_result(id, result=text)])
        case workload.Answer(text):
            return Message("assistant", [text], message_id=f"msg_answer_{number:08}")


if __name__ == "__main__":
    measure.main(AgentFramework())
