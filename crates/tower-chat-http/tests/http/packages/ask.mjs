// Sends requests with the openai package, and prints the content of the answers.
//
//     node ask.mjs BASE_URL REQUESTS
//
// REQUESTS is a file with a line of JSON for each request: {"conversation": ..., "body": ...}.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// The package is in the current folder of the program.
const require = createRequire(join(process.cwd(), "ask.mjs"));
const { default: OpenAI } = require("openai");

const [baseURL, requests] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "key-of-alice", maxRetries: 0 });

async function ask({ conversation, body }) {
  const headers = { "x-conversation-id": conversation };
  const answer = await client.chat.completions.create(body, { headers });
  if (body.stream) return streamed(answer);
  const [choice] = answer.choices;
  const calls = choice.message.tool_calls ?? [];
  const called = calls.map((call) => [call.id, call.function.name, call.function.arguments]);
  return summary(choice.message.content, choice.message.refusal, called, choice.finish_reason);
}

async function streamed(chunks) {
  let [content, refusal, finishReason] = ["", "", null];
  const calls = [];
  for await (const chunk of chunks) {
    for (const choice of chunk.choices) {
      content += choice.delta.content ?? "";
      refusal += choice.delta.refusal ?? "";
      finishReason = choice.finish_reason ?? finishReason;
      for (const piece of choice.delta.tool_calls ?? []) {
        while (calls.length <= piece.index) calls.push(["", "", ""]);
        const call = calls[piece.index];
        call[0] ||= piece.id ?? "";
        call[1] ||= piece.function?.name ?? "";
        call[2] += piece.function?.arguments ?? "";
      }
    }
  }
  return summary(content, refusal, calls, finishReason);
}

function summary(content, refusal, calls, finish_reason) {
  return { content: content ?? "", refusal: refusal ?? "", calls, finish_reason };
}

for (const line of readFileSync(requests, "utf8").trim().split("\n")) {
  console.log(JSON.stringify(await ask(JSON.parse(line))));
}
