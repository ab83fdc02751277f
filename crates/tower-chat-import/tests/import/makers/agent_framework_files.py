"""Creates sessions of Microsoft Agent Framework, which its FileHistoryProvider stores: a file of JSON Lines for each
session, in the folders short, long (a later state of the same session) and other."""

import asyncio
import pathlib
import shutil
import sys

from agent_framework import Content, FileHistoryProvider, Message


def call(number, tool, arguments):
    return Content.from_function_call(f"call_{number}", tool, arguments=arguments)


ALICE = [
    Message("system", ["Be brief."]),
    Message("user", [
        "When is the tide?",
        Content.from_data(b"\x89PNG", media_type="image/png"),
        Content.from_uri("https://charts.example/7.png", media_type="image/png"),
    ]),
    Message("assistant", [
        Content.from_text_reasoning(id="rs_1", text="Two harbours.", protected_data="gAAAB"),
        Content.from_text_reasoning(id="rs_1", text="Or three."),
        Content.from_text("I look."),
        call(1, "tide", {"harbour": "Århus", "big": 1234567890123456789}),
        call(2, "berth", '{"number":99}'),
    ], message_id="msg_1"),
    Message("tool", [Content.from_function_result(
        "call_2", result="Error: there is no berth 99", exception="ValueError('there is no berth 99')"
    )]),
    Message("tool", [Content.from_function_result("call_1", result={"high": "18:40 🌊"})]),
    Message("assistant", [
        "In the evening.", Content.from_usage({"input_token_count": 7})
    ], author_name="pilot"),
    Message("user", [""]),
    Message("assistant", [
        "You wrote nothing.",
        Content("search_tool_call", call_id="search_1", tool_name="web"),
        Content.from_text_reasoning(text="Whose is it?", protected_data="signed elsewhere"),
    ]),
]
# The process died before the tool had answered.
BOB = [Message("user", ["Berth 7, then?"]), Message("assistant", [call(3, "berth", {"number": 7})])]


async def main(folder):
    short = FileHistoryProvider(folder / "short")
    await short.save_messages("alice", ALICE[:2])
    await short.save_messages("alice", ALICE[2:])
    await short.save_messages("team/bob", BOB)
    shutil.copytree(folder / "short", folder / "long")
    later = [Message("user", ["And tomorrow?"]), Message("assistant", ["An hour later."])]
    await FileHistoryProvider(folder / "long").save_messages("alice", later)
    await FileHistoryProvider(folder / "other").save_messages("alice", [Message("user", ["Another question."])])


asyncio.run(main(pathlib.Path(sys.argv[1])))
