"""Sends requests with the openai package, and prints the content of the answers.

    python ask.py BASE_URL REQUESTS

REQUESTS is a file with a line of JSON for each request: {"conversation": ..., "body": ...}.
"""

import json
import sys

import openai


def main():
    base_url, requests = sys.argv[1:]
    client = openai.OpenAI(base_url=base_url, api_key="key-of-alice", max_retries=0)
    with open(requests, encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            print(json.dumps(ask(client, request["conversation"], request["body"])))


def ask(client, conversation, body):
    model, messages = body.pop("model"), body.pop("messages")
    is_streamed = body.pop("stream", False)
    headers = {"x-conversation-id": conversation}
    answer = client.chat.completions.create(
        model=model, messages=messages, stream=is_streamed, extra_body=body, extra_headers=headers
    )
    if is_streamed:
        return streamed(answer)
    choice = answer.choices[0]
    calls = [
        [call.id, call.function.name, call.function.arguments]
        for call in choice.message.tool_calls or []
    ]
    return summary(choice.message.content, choice.message.refusal, calls, choice.finish_reason)


def streamed(chunks):
    texts, refusals, calls, finish_reason = [], [], [], None
    for chunk in chunks:
        for choice in chunk.choices:
            texts.append(choice.delta.content or "")
            refusals.append(choice.delta.refusal or "")
            finish_reason = choice.finish_reason or finish_reason
            for piece in choice.delta.tool_calls or []:
                while len(calls) <= piece.index:
                    calls.append(["", "", ""])
                call = calls[piece.index]
                call[0] = call[0] or piece.id or ""
                call[1] = call[1] or piece.function.name or ""
                call[2] += piece.function.arguments or ""
    return summary("".join(texts), "".join(refusals), calls, finish_reason)


def summary(content, refusal, calls, finish_reason):
    return {
        "content": content or "",
        "refusal": refusal or "",
        "calls": calls,
        "finish_reason": finish_reason,
    }


main()
