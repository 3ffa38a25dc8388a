// The decisions, newest first.

import { time } from "./model.js";

const MOST = 100;

function item(event) {
  const node = document.createElement("li");
  node.dataset.kind = event.kind;
  const at = document.createElement("time");
  at.dateTime = new Date(1000 * event.at_s).toISOString();
  at.textContent = time(event.at_s);
  // A verdict's first part is the cause, the rest is why.
  const [what, ...why] = event.text.split(": ");
  const text = event.backend ? `${event.backend}: ${what}` : what;
  node.append(at, text);
  if (event.kind === "verdict" && what === "none") {
    node.dataset.fine = "";
    node.lastChild.textContent = `${event.backend}: as expected again`;
  }
  if (why.length) {
    const rest = document.createElement("span");
    rest.className = "why";
    rest.textContent = why.join(": ");
    node.append(rest);
  }
  return node;
}

/** The section. */
export class Timeline {
  constructor() {
    this.list = document.getElementById("timeline");
    this.newest = 0;
  }

  /** Begin anew: another connection may be another controller, which counts from 1. */
  load(events) {
    this.list.replaceChildren();
    this.newest = 0;
    for (const event of events) this.add(event);
  }

  add(event) {
    if (event.number <= this.newest) return;
    this.newest = event.number;
    this.list.prepend(item(event));
    while (this.list.children.length > MOST) this.list.lastChild.remove();
    document.getElementById("no-events").hidden = true;
  }
}
