"""Creates threads of LangGraph: a graph with a model that answers from a list, tools, and SqliteSaver. Writes
short.db, long.db (a later state of the same threads), other.db, and the three again as delta-*.db with a
DeltaChannel, which stores the writes instead of the state."""

import pathlib
import shutil
import sys
from typing import Annotated

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import TypedDict


class DeltaState(TypedDict):
    messages: Annotated[list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


@tool
def tide(harbour: str) -> str:
    """The time of high water."""
    return f"High water in {harbour} 🌊"


@tool(response_format="content_and_artifact")
def chart(number: int):
    """A chart."""
    return [{"type": "text", "text": "The chart"}, {"type": "image_url", "image_url": {"url": "https://charts.example/7.png"}}], {"sheet": number}


@tool
def berth(number: int) -> str:
    """A berth."""
    raise ValueError(f"there is no berth {number}")


def call(number, name, /, **arguments):
    return {"name": name, "args": arguments, "id": f"call_{number}"}


def graph(saver, state, *answers):
    model = GenericFakeChatModel(messages=iter(answers))
    builder = StateGraph(state)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([tide, chart, berth], handle_tool_errors=True))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)


def thread(name):
    return {"configurable": {"thread_id": name}}


def fill(path, state):
    with SqliteSaver.from_conn_string(str(path)) as saver:
        app = graph(
            saver,
            state,
            AIMessage(
                content=[
                    {"type": "thinking", "thinking": "Two harbours.", "signature": "c2lnbmVk"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1", "name": "tide", "input": {"harbour": "Århus"}},
                ],
                tool_calls=[
                    call(1, "tide", harbour="Århus"),
                    call(2, "berth", number=12345678901234567890),
                    call(3, "chart", number=7),
                ],
            ),
            AIMessage("In the evening."),
            AIMessage("You wrote nothing.", name="pilot"),
        )
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        app.invoke(
            {"messages": [
                SystemMessage("Be brief."),
                HumanMessage([{"type": "text", "text": "When is the tide?"}, picture]),
                HumanMessage("This one is taken back.", id="taken back"),
            ]},
            thread("alice"),
        )
        app.update_state(thread("alice"), {"messages": [RemoveMessage(id="taken back")]})
        app.invoke({"messages": [HumanMessage("")]}, thread("alice"))
        bob = graph(saver, state)
        # A node of the graph answered the calls in another order, and the process died after the model
        # had called again.
        bob.update_state(thread("bob"), {"messages": [
            HumanMessage("Whose ship is it?"),
            AIMessage("", tool_calls=[call(4, "ship"), call(5, "flag", big=1)], additional_kwargs={"reasoning_content": "Which ship?"}),
            ToolMessage("Danish", tool_call_id="call_5"),
            ToolMessage("The Freja", tool_call_id="call_4"),
            AIMessage("The Freja's."),
            HumanMessage("Where is she?"),
            AIMessage("", tool_calls=[call(6, "where", ship="Freja")]),
        ]})


def more(path, state):
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph(saver, state, AIMessage("An hour later.")).invoke(
            {"messages": [HumanMessage("And tomorrow?")]}, thread("alice")
        )


def other(path, state):
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph(saver, state, AIMessage("Another answer.")).invoke(
            {"messages": [HumanMessage("Another question.")]}, thread("alice")
        )


folder = pathlib.Path(sys.argv[1])
for prefix, state in [("", MessagesState), ("delta-", DeltaState)]:
    fill(folder / f"{prefix}short.db", state)
    shutil.copy(folder / f"{prefix}short.db", folder / f"{prefix}long.db")
    more(folder / f"{prefix}long.db", state)
    other(folder / f"{prefix}other.db", state)
