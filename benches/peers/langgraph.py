"""LangGraph: a scripted `BaseChatModel` and a `SqliteSaver` in a file, `durability="sync"`.

With `plain` every checkpoint contains the whole list of messages; `delta` uses a `DeltaChannel`.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import deque
from pathlib import Path
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import TypedDict

from peers import measure, workload


class DeltaState(TypedDict):
    """`MessagesState`, with the channel that stores only the new messages."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class ScriptedModel(BaseChatModel):
    """Returns prepared answers, one for each call."""

    answers: Any = deque()
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked += 1
        return ChatResult(generations=[ChatGeneration(message=self.answers.popleft())])


@tool(workload.TOOL)
def search_orders(order: str, fields: list[str], limit: int) -> str:
    """Looks orders up."""
    return workload.RESULT_TEXT


class LangGraph(measure.Peer):
    packages = ("langgraph", "langgraph-checkpoint-sqlite")

    def __init__(self, state: type) -> None:
        self.state = state
        self.model = ScriptedModel()

    def open(self, folder: Path) -> None:
        self.connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
        graph: StateGraph[Any] = StateGraph(self.state)
        graph.add_node("agent", lambda state: {"messages": [self.model.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([search_orders]))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        self.graph = graph.compile(checkpointer=SqliteSaver(self.connection))

    def store(self, conversation: str, messages: list[workload.Message]) -> None:
        update = {"messages": [_message(message) for message in messages]}
        self.graph.update_state(_config(conversation), update, as_node="agent")

    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        self.model.answers = deque(_message(answer) for answer in answers)
        self.model.asked = 0

    def run(self, conversation: str) -> str:
        given = {"messages": [HumanMessage(workload.INPUT)]}
        state = self.graph.invoke(given, _config(conversation), durability="sync")
        return str(state["messages"][-1].content)

    def read(self, conversation: str) -> int:
        return len(self.graph.get_state(_config(conversation)).values.get("messages", []))

    def calls(self) -> int:
        return self.model.asked

    def close(self) -> None:
        self.connection.close()


def _config(conversation: str) -> Any:
    return {"configurable": {"thread_id": conversation}, "recursion_limit": 3 * workload.CALLS}


def _message(message: workload.Message) -> BaseMessage:
    match message:
        case workload.Input(text):
            return HumanMessage(text)
        case workload.Call(id, arguments):
            call = {"name": workload.TOOL, "args": workload.parsed(arguments), "id": id}
            return AIMessage("", tool_calls=[call])
        case workload.Result(id, text):
            return ToolMessage(text, tool_call_id=id, name=workload.TOOL)
        case workload.Answer(text):
            return AIMessage(text)


if __name__ == "__main__":
    measure.main(LangGraph(DeltaState if sys.argv.pop(1) == "delta" else MessagesState))
