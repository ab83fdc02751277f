// Updates the page of a conversation when the conversation changes, and moves the focus between messages when
// the key j or k is pressed. The pages work without this script.
"use strict";

const timeline = () => document.getElementById("timeline");

// Loads the page again and replaces the content of the document. Elements that the reader has opened remain open.
async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const unfolded = new Set();
  const place = (details) => {
    const row = details.closest("article");
    const all = row ? [...row.querySelectorAll("details")] : [];
    return row ? `${row.id} ${all.indexOf(details)}` : "";
  };
  for (const details of document.querySelectorAll("#timeline details[open]")) unfolded.add(place(details));
  const focused = document.activeElement?.id;
  const [old, next] = [document.getElementById("content"), fresh.getElementById("content")];
  if (!old || !next) return;
  old.replaceWith(next);
  showText();
  for (const details of document.querySelectorAll("#timeline details")) {
    if (unfolded.has(place(details))) details.open = true;
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// The text of the answer that the model is generating.
let live = "";

function showText() {
  const place = document.getElementById("live");
  if (!place) return;
  place.hidden = live === "";
  place.querySelector("pre").textContent = live;
}

function follow() {
  const address = timeline()?.dataset.changes;
  if (!address) return;
  let pending = Promise.resolve();
  const events = new EventSource(address);
  events.addEventListener("changed", (event) => {
    const isShown = () => timeline()?.dataset.state === event.data;
    pending = pending.then(() => isShown() || refresh()).catch(() => {});
  });
  events.addEventListener("text", (event) => {
    live = JSON.parse(event.data);
    showText();
  });
  // After the browser has reconnected, the server sends the whole text again.
  events.addEventListener("error", () => {
    live = "";
    showText();
  });
}

// Moves the focus to the next message for the key j, and to the previous one for k.
function move(event) {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  const rows = [...document.querySelectorAll("article.row")];
  if (rows.length === 0) return;
  const current = rows.indexOf(document.activeElement?.closest("article.row"));
  const next = current < 0 ? (step > 0 ? 0 : rows.length - 1) : current + step;
  rows[Math.min(Math.max(next, 0), rows.length - 1)].focus();
}

document.addEventListener("keydown", move);
follow();
