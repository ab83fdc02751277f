// Controls a browser that uses the pages as a person would. The test fails after any warning or error in the
// console of a page.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

const [address, hostile, chromium, modules, screenshots] = process.argv.slice(2);
const puppeteer = createRequire(path.join(modules, "package.json"))("puppeteer-core");

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const complaints = [];
// The time limit of one step, in milliseconds. It is long because other tests may keep the machine busy.
const timeout = 300_000;

async function open({ width = 1280, scheme = "light", script = true } = {}) {
  const page = await browser.newPage();
  page.on("console", (message) => {
    if (["error", "warn", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("requestfailed", (request) => {
    // When the browser leaves a page, it cancels the request for the event stream.
    if (!request.url().includes("/changes")) complaints.push(`${request.url()} failed`);
  });
  page.on("dialog", (dialog) => complaints.push(`a dialog: ${dialog.message()}`));
  await page.setViewport({ width, height: 800 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setJavaScriptEnabled(script);
  return page;
}

const of = (name, id) =>
  `${address}/${name}?scope=alice` + (id === undefined ? "" : `&id=${encodeURIComponent(id)}`);
const pages = {
  scopes: address,
  directory: `${address}?scope=alice`,
  conversation: of("conversation", "errands"),
  trip: of("conversation", "trip"),
  many: of("conversation", "many"),
  enormous: of("conversation", "enormous"),
  hostile: of("conversation", hostile),
  next: of("next", "errands"),
  "next-enormous": of("next", "enormous"),
  "next-hostile": of("next", hostile),
  runs: of("runs"),
  tools: of("tools"),
  usage: of("usage"),
};

async function visit(page, url) {
  const answer = await page.goto(url, { waitUntil: "domcontentloaded", timeout });
  assert.equal(answer.status(), 200, url);
}

const text = (page) => page.$eval("main", (main) => main.innerText);

// Returns the contrast of the text of every visible element with its background, as defined by WCAG 2.
const contrast = () => {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = ([red, green, blue]) => {
    const linear = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const color = parse(getComputedStyle(it).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.getClientRects().length === 0 || element.matches("option, script")) continue;
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName} ${element.className} ${ratio.toFixed(2)}`);
  }
  return poor;
};

try {
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 360]) {
      const page = await open({ width, scheme });
      for (const [name, url] of Object.entries(pages)) {
        const where = `${name}, ${scheme}, ${width}`;
        await visit(page, url);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${where} is ${wide} pixels too wide`);
        assert.deepEqual(await page.evaluate(contrast), [], `${where} is hard to read`);
        const outline = await page.evaluate(() => ({
          language: document.documentElement.lang,
          headings: document.querySelectorAll("h1").length,
          mains: document.querySelectorAll("main").length,
          unnamed: [...document.querySelectorAll("input:not([type=hidden]), select, button, a")]
            .filter((it) => !it.closest("label") && !it.textContent.trim() && !it.ariaLabel).length,
          scripts: document.scripts.length,
        }));
        const expected = { language: "en", headings: 1, mains: 1, unnamed: 0, scripts: 1 };
        assert.deepEqual(outline, expected, where);
        if (screenshots && !/hostile|enormous/.test(name)) {
          await page.screenshot({ path: `${screenshots}/${name}-${scheme}-${width}.png` });
        }
      }
      await page.close();
    }
  }

  // Without scripts every page has the same content.
  const plain = await open({ script: false });
  await visit(plain, pages.conversation);
  for (const part of ["Find my things.", "find", "fail", "The keys are here."]) {
    assert.ok((await text(plain)).includes(part), part);
  }
  await plain.click('a[href*="/next"]');
  await plain.waitForSelector("table.next");
  await plain.close();

  // Uses the pages with the keyboard only.
  const keys = await open();
  await visit(keys, pages.conversation);
  const focused = (question) => keys.evaluate(question);
  await keys.keyboard.press("Tab");
  assert.equal(await focused(() => document.activeElement.className), "skip");
  await keys.keyboard.press("Enter");
  assert.equal(await focused(() => document.activeElement.id), "content");
  for (const [key, row] of [["j", 1], ["j", 2], ["j", 3], ["k", 2]]) {
    await keys.keyboard.press(key);
    assert.equal(await focused(() => document.activeElement.id), `message-${row}`);
  }
  const summary = () => focused(() => document.activeElement.tagName);
  for (let presses = 0; (await summary()) !== "SUMMARY" && presses < 20; presses += 1) {
    await keys.keyboard.press("Tab");
  }
  assert.equal(await summary(), "SUMMARY");
  await keys.keyboard.press("Enter");
  assert.ok(await focused(() => document.activeElement.parentElement.open));
  assert.ok((await text(keys)).includes("found by"));
  await visit(keys, pages.directory);
  await keys.focus("input[type=search]");
  await keys.keyboard.type("lost");
  await Promise.all([keys.waitForNavigation({ timeout }), keys.keyboard.press("Enter")]);
  assert.ok((await text(keys)).includes("Lost things"));
  assert.equal(await keys.$$eval("tbody tr", (rows) => rows.length), 1);
  await keys.close();

  // A long conversation is divided into pages.
  const parts = await open();
  await visit(parts, pages.many);
  assert.equal(await parts.$$eval("article", (rows) => rows.length), 50);
  assert.ok((await text(parts)).includes("Answer 9999."));
  await Promise.all([parts.waitForNavigation({ timeout }), parts.click("a[rel=prev]")]);
  assert.ok((await text(parts)).includes("Answer 9949."));
  await parts.close();

  // Stored texts are shown as texts, and not as markup.
  const strange = await open();
  await visit(strange, pages.hostile);
  assert.ok((await text(strange)).includes("<script>alert('x')</script> \\u{202e}\\u{1b}[2J &amp;"));
  for (const url of [pages.enormous, pages["next-enormous"]]) {
    await visit(strange, url);
    const size = await strange.evaluate(() => document.documentElement.outerHTML.length);
    assert.ok(size < 200_000, `${url} has ${size} characters`);
    assert.ok((await text(strange)).includes("4194304 bytes"), await text(strange));
  }
  await strange.close();

  // The page of a run in progress updates itself, and opened elements remain open.
  const live = await open();
  await visit(live, of("conversation", "live"));
  await live.waitForFunction(() => document.querySelector(".band.staged summary"), { polling: 100, timeout });
  await live.click(".band.staged summary");
  // The text of the answer in progress is shown as text.
  const inProgress = () => document.querySelector("#live:not([hidden]) pre")?.innerText === "The <b>umbrella</b> ";
  await live.waitForFunction(inProgress, { polling: 100, timeout });
  await fetch(new URL("/go", address), { method: "POST" });
  const isThere = () => document.body.innerText.includes("The <b>umbrella</b> is in the hall.");
  await live.waitForFunction(isThere, { polling: 100, timeout });
  await live.waitForFunction(() => document.getElementById("live").hidden, { polling: 100, timeout });
  await live.waitForFunction(() => !document.querySelector(".band.staged"), { polling: 100, timeout });
  assert.ok(await live.$eval("article details", (details) => details.open));
  await live.close();

  // Approves a call that waits, after which the run continues.
  const approval = await open();
  await visit(approval, pages.runs);
  await approval.click("input[value=approve]");
  await Promise.all([approval.waitForNavigation({ timeout }), approval.click("form.decide button")]);
  const isPaid = () => document.body.innerText.includes("The bill is paid.");
  await approval.waitForFunction(isPaid, { polling: 100, timeout });
  await approval.close();

  assert.deepEqual(complaints, []);
} finally {
  await browser.close();
}
