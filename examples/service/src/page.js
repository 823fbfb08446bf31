// Shows an order as it goes on, and the note to the customer word by word. When the connection is lost, the browser connects again and sends
// the id of the last event that it saw, so nothing is missing and nothing is shown twice.
"use strict";

const id = new URLSearchParams(location.search).get("order") ?? "";
const at = (name) => document.getElementById(name);
at("order").textContent = id;

const source = new EventSource(`/orders/${encodeURIComponent(id)}/events`);
const on = (kind, show) => source.addEventListener(kind, (frame) => show(JSON.parse(frame.data).event));

on("status", ({ status }) => { at("status").textContent = status; });
on("node_completed", ({ node }) => {
  at("done").append(Object.assign(document.createElement("li"), { textContent: node }));
});
on("chunks", ({ stream, first, chunks }) => {
  if (stream !== "note") return;
  // From number 0 on, the note is begun anew: by a further attempt, or by another replica after the first was killed.
  if (first === 0) at("note").textContent = "";
  at("note").textContent += chunks.join("");
});
// It would connect again for ever otherwise.
source.addEventListener("end", () => source.close());
