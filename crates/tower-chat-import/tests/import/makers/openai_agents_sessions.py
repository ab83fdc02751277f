"""Creates conversations of the OpenAI Agents SDK: its runner with a model that answers from a list, and its
SQLiteSession. Writes short.db, long.db (a later state of the same conversations) and other.db to the folder in the
argument."""

import asyncio
import pathlib
import shutil
import sys

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool
from agents import set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary


def text(number, words):
    part = ResponseOutputText(type="output_text", text=words, annotations=[])
    return ResponseOutputMessage(
        id=f"msg_{number}", type="message", role="assistant", status="completed", content=[part]
    )


def call(number, tool, arguments):
    return ResponseFunctionToolCall(
        id=f"fc_{number}", call_id=f"call_{number}", type="function_call", name=tool,
        arguments=arguments, status="completed",
    )


class Scripted(Model):
    def __init__(self, *answers):
        self.answers = list(answers)

    async def get_response(self, *_arguments, **_options):
        return ModelResponse(output=self.answers.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *_arguments, **_options):
        raise NotImplementedError


@function_tool
async def tide(harbour: str) -> str:
    await asyncio.sleep(0.05 if harbour == "Århus" else 0)
    return f"High water in {harbour} 🌊"


@function_tool(failure_error_function=lambda _context, error: f"It failed: {error}")
def berth(number: int) -> str:
    raise ValueError(f"there is no berth {number}")


async def run(session, question, *answers):
    agent = Agent(name="harbour", instructions="Be brief.", model=Scripted(*answers), tools=[tide, berth])
    await Runner.run(agent, question, session=session)


async def fill(path):
    alice, bob = SQLiteSession("alice's", path), SQLiteSession("bob", path)
    await run(
        alice,
        "When is the tide?",
        [
            ResponseReasoningItem(
                id="rs_1", type="reasoning", encrypted_content="gAAAB",
                summary=[Summary(type="summary_text", text="Two harbours.")],
            ),
            call(1, "tide", '{"harbour": "Århus"}'),
            call(2, "tide", '{"harbour":"Oslo"}'),
        ],
        [text(1, "In the evening, in both.")],
    )
    await run(bob, "A berth for me?", [call(3, "berth", '{"number": 99}')], [text(2, "Not that one.")])
    await alice.add_items([
        {"role": "user", "content": [
            {"type": "input_text", "text": "And this ship?"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
        ]},
        {"type": "function_call", "call_id": "call_4", "name": "ship", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_5", "name": "flag", "arguments": '{"big": 12345678901234567890123}'},
        {"type": "function_call_output", "call_id": "call_5", "output": "Danish"},
        {"type": "function_call_output", "call_id": "call_4", "output": "The Freja"},
        {"role": "assistant", "content": "It is the Freja."},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "You wrote nothing."},
    ])
    # The process dies before the tool has answered.
    await bob.add_items([
        {"role": "user", "content": "Berth 7, then?"},
        {"type": "function_call", "call_id": "call_6", "name": "berth", "arguments": '{"number": 7}'},
    ])
    alice.close()
    bob.close()


async def main(folder):
    await fill(folder / "short.db")
    shutil.copy(folder / "short.db", folder / "long.db")
    later = SQLiteSession("alice's", folder / "long.db")
    await run(later, "Thanks, and tomorrow?", [text(3, "An hour later.")])
    later.close()
    other = SQLiteSession("alice's", folder / "other.db")
    await run(other, "Another question.", [text(4, "Another answer.")])
    other.close()


set_tracing_disabled(True)
asyncio.run(main(pathlib.Path(sys.argv[1])))
