// Uses the page in the same way as its users. The model of the server sends a word when this program writes a line.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";

const [chromium, modules, program, database] = process.argv.slice(2);
const puppeteer = createRequire(path.join(modules, "package.json"))("puppeteer-core");
// The maximum time of a step on a busy machine.
const timeout = 300_000;

// Starts a server. The server prints its address, and then a line for each request to the model.
async function start() {
  const child = spawn(program, [database], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  const [address] = await once(lines, "line");
  const server = { child, port: Number(address.split(":").pop()), asked: 0 };
  lines.on("line", () => { server.asked += 1; });
  return server;
}

let server = await start();
const sendWord = () => server.child.stdin.write("word\n");

// The page reaches the server through this proxy, which can cut its connections.
let isCut = false;
const sockets = new Set();
const proxy = net.createServer((client) => {
  if (isCut) return client.destroy();
  const upstream = net.connect(server.port, "127.0.0.1");
  for (const [from, to] of [[client, upstream], [upstream, client]]) {
    sockets.add(from);
    from.pipe(to);
    from.on("error", () => {});
    from.on("close", () => { sockets.delete(from); to.destroy(); });
  }
});
proxy.listen(0, "127.0.0.1");
await once(proxy, "listening");
const address = `http://127.0.0.1:${proxy.address().port}/`;

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

// Opens a page that records each text that it has shown since it was loaded, each once.
async function open() {
  const page = await browser.newPage();
  page.on("pageerror", (error) => assert.fail(String(error)));
  await page.evaluateOnNewDocument(() => {
    addEventListener("DOMContentLoaded", () => {
      window.shown = [];
      const answer = document.getElementById("answer");
      new MutationObserver(() => window.shown.push(answer.textContent))
        .observe(answer, { childList: true, characterData: true, subtree: true });
    });
  });
  await page.goto(address, { timeout });
  return page;
}

const shows = async (page, text) => {
  const isShown = (text) => document.getElementById("answer").textContent === text;
  try {
    await page.waitForFunction(isShown, { polling: 50, timeout }, text);
  } catch {
    assert.equal(await page.$eval("#answer", (answer) => answer.textContent), text);
  }
};

try {
  const first = await open();
  await first.click("form button");
  sendWord();
  await shows(first, "Let me ");

  // Reloads the page in the middle of the answer, and opens a second tab.
  await first.reload({ timeout });
  await shows(first, "Let me ");
  const second = await open();
  await shows(second, "Let me ");

  // Cuts the connections, like a closed laptop, while the answer continues.
  isCut = true;
  for (const socket of sockets) socket.destroy();
  sendWord();
  sendWord();
  isCut = false;
  for (const page of [first, second]) await shows(page, "Let me look.\nIt ");
  assert.equal(server.asked, 2);

  // Kills the server and starts it again. The incomplete text begins again.
  const killed = server.child;
  killed.kill("SIGKILL");
  await once(killed, "exit");
  server = await start();
  await second.waitForFunction(() => window.shown.at(-1) === "Let me look.\n", { polling: 50, timeout });
  sendWord();
  for (const page of [first, second]) await shows(page, "Let me look.\nIt ");
  sendWord();
  for (const page of [first, second]) await shows(page, "Let me look.\nIt rains.\n(completed)");
  assert.equal(server.asked, 1, "the complete message is not requested again");

  // No text was shown twice at any time.
  for (const page of [first, second]) {
    for (const text of await page.evaluate(() => window.shown)) {
      assert.ok("Let me look.\nIt rains.\n(completed)".startsWith(text), JSON.stringify(text));
    }
  }
  await first.reload({ timeout });
  await shows(first, "Let me look.\nIt rains.\n(completed)");
} finally {
  await browser.close();
  server.child.kill("SIGKILL");
  proxy.close();
}
