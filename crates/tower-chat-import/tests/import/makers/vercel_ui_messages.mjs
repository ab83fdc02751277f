// Creates messages of Vercel's AI SDK: the output of streamText and readUIMessageStream for a model that answers
// from a list. Writes short.json, long.json (a later state of the same messages) and other.json. Also writes
// model.json, the messages for a model to which the SDK itself converts short.json.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { convertToModelMessages, jsonSchema, readUIMessageStream, stepCountIs, streamText, tool } from 'ai';
import { MockLanguageModelV3, simulateReadableStream } from 'ai/test';

const folder = process.argv[2];
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const finish = (unified) => ({ type: 'finish', finishReason: { unified, raw: unified }, usage });
const text = (delta) => [
  { type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta }, { type: 'text-end', id: 't' },
];
const call = (number, toolName, input) =>
  ({ type: 'tool-call', toolCallId: `call_${number}`, toolName, input: JSON.stringify(input) });
const reasoning = (id, delta, providerMetadata) => [
  { type: 'reasoning-start', id, providerMetadata }, { type: 'reasoning-delta', id, delta },
  { type: 'reasoning-end', id, providerMetadata },
];
const anything = jsonSchema({ type: 'object' });
const tools = {
  tide: tool({ inputSchema: anything, execute: async ({ harbour }) => {
    await new Promise((resolve) => setTimeout(resolve, 30));
    return { harbour, high: '18:40 🌊' };
  } }),
  berth: tool({ inputSchema: anything, execute: async ({ number }) => { throw new Error(`no berth ${number}`); } }),
  where: tool({ inputSchema: anything }),
};

async function turn(messages, question, id, ...steps) {
  const asked = [...messages, question];
  const streams = steps.map((step) => [{ type: 'stream-start', warnings: [] }, ...step]);
  const model = new MockLanguageModelV3({
    doStream: async () => ({ stream: simulateReadableStream({ chunks: streams.shift() }) }),
  });
  const result = streamText({
    model, tools, messages: await convertToModelMessages(asked), stopWhen: stepCountIs(5), onError: () => {},
  });
  let answer;
  const stream = result.toUIMessageStream({
    originalMessages: asked, generateMessageId: () => id, sendSources: true,
    onError: (error) => `It failed: ${error.message}`,
    messageMetadata: ({ part }) => (part.type === 'start' ? { model: 'mock' } : undefined),
  });
  for await (const message of readUIMessageStream({ stream })) answer = message;
  return [...asked, answer];
}

const user = (id, ...parts) => ({ id, role: 'user', parts });
const said = (text) => ({ type: 'text', text });
const picture = {
  type: 'file', mediaType: 'image/png', filename: 'ship.png', url: 'data:image/png;base64,iVBORw0KGgo=',
};
let alice = await turn(
  [{ id: 's', role: 'system', parts: [said('Be brief.')] }],
  user('u1', said('When is the tide?'), picture),
  'a1',
  [
    ...reasoning('r1', 'Two harbours.', { anthropic: { signature: 'c2lnbmVk' } }), ...text('I look.'),
    call(1, 'tide', { harbour: 'Århus' }), call(2, 'berth', { number: 99 }), finish('tool-calls'),
  ],
  [
    ...reasoning('rs:0', 'Now', { openai: { itemId: 'rs_1', reasoningEncryptedContent: 'gAAAB' } }),
    ...reasoning('rs:1', 'I know.', { openai: { itemId: 'rs_1' } }),
    { type: 'source', sourceType: 'url', id: 'src', url: 'https://tides.example', title: 'Tides' },
    ...text('In the evening.'), finish('stop'),
  ],
);
alice = await turn(alice, user('u2', said('')), 'a2', [...text('You wrote nothing.'), finish('stop')]);
// Adds a data part that the program shows beside the answer, and a call of a tool that only this answer has.
alice.at(-1).parts.push({ type: 'data-weather', data: { rain: true } });
alice.at(-1).parts.push({
  type: 'dynamic-tool', toolName: 'flag', toolCallId: 'call_3', state: 'output-available', input: {}, output: 'Danish',
});
const bob = await turn([], user('u3', said('Where is she?')), 'a3', [call(4, 'where', { ship: 'Freja' }), finish('tool-calls')]);
const conversations = [{ id: 'alice', messages: alice }, { id: 'bob', messages: bob }];
const long = await turn(alice, user('u4', said('And tomorrow?')), 'a4', [...text('An hour later.'), finish('stop')]);
const other = await turn([], user('u5', said('Another question.')), 'a5', [...text('Another answer.'), finish('stop')]);
const write = (name, value) => writeFileSync(join(folder, name), JSON.stringify(value));
write('short.json', conversations);
write('long.json', [{ id: 'alice', messages: long }, conversations[1]]);
write('other.json', [{ id: 'alice', messages: other }]);
write('model.json', await convertToModelMessages(alice));
