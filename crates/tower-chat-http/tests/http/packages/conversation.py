"""Runs a conversation of three turns with tools through the openai package.

    python conversation.py BASE_URL CONVERSATION whole|streamed|helper new|repeat|window
"""

import json
import sys

import openai

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


def main():
    base_url, conversation, form, history = sys.argv[1:]
    client = openai.OpenAI(base_url=base_url, api_key="key-of-alice", max_retries=0)
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").id == "scripted"

    talk = Conversation(client, conversation, form, history)
    talk.say({"role": "system", "content": "Be brief."})
    assert talk.ask("How is the weather in Paris?") == "Let me look.\n\nIt rains in Paris."
    assert talk.ask("Where is my order 7?") == "One moment.\n\nOrder 7 is on its way."
    assert talk.ask("The weather in Rome and Oslo?") == "Rain in both."
    assert talk.cities == ["Paris", "Rome", "Oslo"]
    refusals(client, conversation)
    print("done")


class Conversation:
    """A client that runs its own tools and sends its messages in one of several ways."""

    def __init__(self, client, name, form, history):
        self.client = client
        self.form = form
        self.history = history
        # The conversation is named in the body or in a header.
        if form == "streamed":
            self.name = {"extra_body": {"conversation": {"id": name}}}
        else:
            self.name = {"extra_headers": {"x-conversation-id": name}}
        self.messages = []
        self.sent = 0
        self.cities = []

    def say(self, message):
        self.messages.append(message)

    def ask(self, text):
        """Sends a question, runs tools until an answer has no calls, and returns the texts of all answers."""
        self.say({"role": "user", "content": text})
        said = []
        while True:
            message, reason = self.complete()
            if message["content"]:
                said.append(message["content"])
            self.say(message)
            # The server stores its own answer, so the answer is not sent again.
            self.sent = len(self.messages)
            calls = message.get("tool_calls")
            assert reason == ("tool_calls" if calls else "stop"), (reason, message)
            if not calls:
                return "\n\n".join(said)
            for call in calls:
                assert call["function"]["name"] == "weather", call
                city = json.loads(call["function"]["arguments"])["city"]
                self.cities.append(city)
                content = f"Rain in {city}."
                self.say({"role": "tool", "tool_call_id": call["id"], "content": content})

    def complete(self):
        if self.history == "new":
            messages = self.messages[self.sent :]
        elif self.history == "window":
            # The system message and the last messages, as from a client with a window.
            messages = self.messages[:1] + self.messages[1:][-5:]
        else:
            messages = self.messages
        request = {
            "model": "scripted",
            "messages": messages,
            "tools": TOOLS,
            "temperature": 0.25,
            "seed": 7,
            **self.name,
        }
        if self.form == "whole":
            answer = self.client.chat.completions.create(**request)
            assert answer.usage.total_tokens > 0, answer
            message = answer.choices[0].message.model_dump(exclude_none=True)
            message.setdefault("content", None)
            return message, answer.choices[0].finish_reason
        if self.form == "helper":
            with self.client.chat.completions.stream(**request) as stream:
                choice = stream.get_final_completion().choices[0]
            message = choice.message.to_dict()
            message.pop("parsed", None)
            for call in message.get("tool_calls") or []:
                call["function"].pop("parsed_arguments", None)
            return message, choice.finish_reason
        return self.streamed(request)

    def streamed(self, request):
        content, calls, reason, usage = "", {}, None, None
        options = {"include_usage": True}
        chunks = self.client.chat.completions.create(
            **request, stream=True, stream_options=options
        )
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                reason = choice.finish_reason or reason
                content += choice.delta.content or ""
                for call in choice.delta.tool_calls or []:
                    whole = calls.setdefault(call.index, {"name": "", "arguments": ""})
                    whole["id"] = call.id or whole.get("id")
                    whole["name"] += call.function.name or ""
                    whole["arguments"] += call.function.arguments or ""
        assert usage.total_tokens > 0, usage
        message = {"role": "assistant", "content": content or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls.values()
            ]
        return message, reason


def refusals(client, conversation):
    """Checks that refused requests raise exceptions of the package, and change nothing."""

    def refused(kind, code, **request):
        request = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], **request}
        try:
            client.chat.completions.create(**request)
        except kind as error:
            assert error.code == code, error
            return error
        raise AssertionError(f"no {kind} with {code}")

    name = {"x-conversation-id": conversation}
    other_way = [
        {"role": "user", "content": "How is the weather in Paris?"},
        {"role": "assistant", "content": "Who knows."},
        {"role": "user", "content": "Ask somebody."},
    ]
    refused(openai.ConflictError, "conversation_diverged", messages=other_way, extra_headers=name)
    refused(openai.NotFoundError, "model_not_found", model="another", extra_headers=name)
    refused(openai.BadRequestError, None, n=2, extra_headers=name)
    stranger = {"Authorization": "Bearer key-of-nobody", **name}
    refused(openai.AuthenticationError, "no_scope", extra_headers=stranger)


main()
