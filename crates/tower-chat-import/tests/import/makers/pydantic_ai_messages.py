"""Creates histories of Pydantic AI: its agent with a model that answers from a list, and its
ModelMessagesTypeAdapter. Writes short.json, long.json (a later state of the same history), other.json, and both
conversations as conversations.jsonl."""

import json
import pathlib
import sys

from pydantic_ai import Agent, BinaryContent, ImageUrl, ModelMessagesTypeAdapter, ModelRetry
from pydantic_ai.messages import (
    ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart, UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel


def agent(*answers):
    answers = list(answers)
    made = Agent(
        FunctionModel(lambda _messages, _info: answers.pop(0)),
        system_prompt="Be brief.", instructions="These go with every request.",
    )

    @made.tool_plain
    def tide(harbour: str) -> dict:
        return {"harbour": harbour, "high": "18:40 🌊"}

    @made.tool_plain
    def berth(number: int) -> str:
        raise ModelRetry(f"there is no berth {number}")

    return made


first = agent(
    ModelResponse(parts=[
        ThinkingPart("Two harbours.", signature="c2lnbmVk", provider_name="anthropic"),
        TextPart("I look."),
        ToolCallPart("tide", {"harbour": "Århus"}, "call_1"),
        ToolCallPart("berth", '{"number": 99}', "call_2"),
    ]),
    ModelResponse(parts=[
        ThinkingPart("Now", id="rs_1", signature="gAAAB", provider_name="openai"),
        ThinkingPart("I know.", id="rs_1", provider_name="openai"),
        TextPart("In the evening."),
    ]),
).run_sync(
    ["When is the tide?", ImageUrl("https://charts.example/7.png"), BinaryContent(b"\xfb\xff", media_type="image/png")],
    conversation_id="alice",
)
second = agent(ModelResponse(parts=[TextPart("You wrote nothing.")])).run_sync(
    "", message_history=first.all_messages(), conversation_id="alice"
)
third = agent(ModelResponse(parts=[TextPart("An hour later.")])).run_sync(
    "And tomorrow?", message_history=second.all_messages(), conversation_id="alice"
)
other = agent(ModelResponse(parts=[TextPart("Another answer.")])).run_sync(
    "Another question.", conversation_id="alice"
)
# Results in another order, and a process that died before the tool had answered.
bob = [
    ModelRequest(parts=[UserPromptPart("Whose ship is it?")], conversation_id="bob"),
    ModelResponse(parts=[ToolCallPart("ship", {"big": 12345678901234567890123}, "call_3"), ToolCallPart("flag", None, "call_4")]),
    ModelRequest(parts=[ToolReturnPart("flag", "Danish", "call_4"), ToolReturnPart("ship", "The Freja", "call_3")]),
    ModelResponse(parts=[TextPart("The Freja's.")]),
    ModelRequest(parts=[UserPromptPart("Where is she?")]),
    ModelResponse(parts=[ToolCallPart("where", '{"ship":"Freja"}', "call_5")]),
]
folder = pathlib.Path(sys.argv[1])
for name, messages in {
    "short": second.all_messages(), "long": third.all_messages(), "other": other.all_messages()
}.items():
    (folder / f"{name}.json").write_bytes(ModelMessagesTypeAdapter.dump_json(messages))
lines = [
    '{"id": ' + json.dumps(name) + ', "messages": ' + ModelMessagesTypeAdapter.dump_json(messages).decode() + "}\n"
    for name, messages in [("alice", second.all_messages()), ("bob", bob)]
]
(folder / "conversations.jsonl").write_text("".join(lines), encoding="utf-8")
