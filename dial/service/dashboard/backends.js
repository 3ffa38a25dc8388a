// The list of backends: a row each, kept and moved, never made anew; charts only where one looks.

import { detail, field, spark } from "./chart.js";
import { ms, moved, number, order, severity, time, verdict } from "./model.js";

const MANY = 12; // from here on rows are low, and there is an overview
const NARROW = matchMedia("(max-width: 1000px)"); // the decisions come below the backends
const page = () => (NARROW.matches ? 12 : 60); // rows that are made at first; trouble is among them

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

class Row {
  constructor(name, id, context) {
    this.name = name;
    this.context = context;
    this.visible = false;
    this.root = make("li", "backend");
    this.root.dataset.name = name;
    this.button = make("button", "row");
    this.button.type = "button";
    this.button.setAttribute("aria-expanded", "false");
    this.button.setAttribute("aria-controls", id);
    const who = make("span", "who");
    this.title = make("span", "name", name);
    this.verdict = make("span", "verdict");
    who.append(this.title, this.verdict);
    this.spark = make("canvas", "spark");
    this.spark.setAttribute("aria-hidden", "true");
    const times = make("span", "time");
    this.tx = make("b");
    this.expected = make("small");
    times.append(this.tx, this.expected);
    const weight = make("span", "weight");
    const track = make("span", "track");
    this.fill = make("span", "fill");
    this.mark = make("span", "mark");
    track.append(this.fill, this.mark);
    this.weight = make("small");
    weight.append(track, this.weight);
    this.button.append(who, this.spark, times, weight);
    this.detail = make("div", "detail");
    this.detail.id = id;
    this.detail.hidden = true;
    this.root.append(this.button, this.detail);
    this.button.addEventListener("click", () => this.toggle());
  }

  toggle(open = this.detail.hidden) {
    this.detail.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open && !this.detail.firstChild) this.build();
    this.draw();
  }

  build() {
    const left = make("div");
    left.append(make("h3", "", "Response time and weight"));
    this.chart = make("canvas", "chart");
    this.chart.setAttribute("role", "img");
    left.append(this.chart);
    const right = make("div");
    right.append(make("h3", "", "Evidence"));
    this.evidence = make("ul", "evidence");
    right.append(this.evidence);
    this.facts = make("dl", "facts");
    const facts = make("div");
    facts.append(make("h3", "", "Figures"), this.facts);
    const hand = make("div");
    hand.append(make("h3", "", "Weight by hand"));
    this.form = make("form", "byhand");
    const field = (label, value, least, most) => {
      const box = make("label", "", label);
      const input = make("input");
      Object.assign(input, { type: "number", min: least, max: most, value, required: true });
      box.append(input);
      this.form.append(box);
      return input;
    };
    this.weightInput = field("Weight", this.row.weight, 1, 1_000_000);
    this.minutesInput = field("Minutes", 10, 1, 1440);
    this.set = make("button", "button", "Set");
    this.set.type = "submit";
    this.end = make("button", "button", "End now");
    this.end.type = "button";
    this.form.append(this.set, this.end);
    this.note = make("p", "sub small note");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.context.setWeight(this.name, this.weightInput.valueAsNumber, 60 * this.minutesInput.valueAsNumber);
    });
    this.end.addEventListener("click", () => this.context.endWeight(this.name));
    hand.append(this.form, this.note);
    this.detail.append(left, right, facts, hand);
    this.showDetail();
  }

  show(row, state) {
    this.row = row;
    this.state = state;
    const rank = severity(row);
    this.root.dataset.severity = rank;
    this.root.toggleAttribute("data-moved", row.weight < row.weight_configured);
    this.root.toggleAttribute("data-override", row.override !== null);
    put(this.verdict, row.override ? `Set by hand until ${time(row.override.until_s)}` : verdict(row));
    const tx = number(row.t_x_ms);
    const expected = number(row.expected_t_x_ms);
    put(this.tx, ms(tx));
    put(this.expected, expected === null ? "" : `expected ≤ ${ms(expected)}`);
    const most = Math.max(row.weight, row.weight_configured, 1);
    this.fill.style.width = `${(100 * row.weight) / most}%`;
    this.mark.style.left = `calc(${(100 * row.weight_configured) / most}% - 1px)`;
    const share = number(row.share);
    put(this.weight, `weight ${row.weight}`
      + (row.weight === row.weight_configured ? "" : ` of ${row.weight_configured}`)
      + (share === null ? "" : ` · ${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`));
    if (this.detail.firstChild) this.showDetail();
  }

  showDetail() {
    const { row, state } = this;
    const lines = row.evidence.length ? row.evidence : ["Nothing speaks against it."];
    if (this.evidence.textContent !== lines.join("")) {
      this.evidence.replaceChildren(...lines.map((line) => make("li", "", line)));
    }
    const figure = (value, unit, digits) => {
      const found = number(value);
      return found === null ? value.reason : `${found.toFixed(digits)}${unit}`;
    };
    const facts = [
      ["Requests", `${row.rate_per_s.toFixed(1)} / s`],
      ["Failed", `${row.errors} of ${row.requests}`],
      ["In flight", `${row.in_flight}`],
      ["Peak alone", figure(row.peak_rps, " / s", 0)],
      ["Own use, rho_fg", figure(row.rho_fg, "", 2)],
      ["Neighbour's, rho_bg", figure(row.rho_bg, "", 2)],
      ["Weight planned", `${row.weight_planned ?? "–"}`],
      ["Agent", row.agent ?? "reports"],
    ];
    if (!this.facts.firstChild) {
      for (const [term] of facts) {
        const box = make("div");
        box.append(make("dt", "", term), make("dd"));
        this.facts.append(box);
      }
    }
    facts.forEach(([, value], i) => put(this.facts.children[i].lastChild, value));
    const [least, most] = [state.meaning?.minimum ?? 1, state.meaning?.maximum ?? 1];
    Object.assign(this.weightInput, { min: least, max: most });
    const why = { shadow: "Shadow mode: nothing is written.", frozen: "Frozen: nothing is written." }[state.mode];
    this.set.disabled = why !== undefined;
    this.end.hidden = row.override === null;
    put(this.note, why ?? `From ${least} to ${most}; it ends by itself, and needs the operator's token.`);
  }

  draw() {
    if (!this.visible || !this.row) return;
    const points = this.context.history.of(this.name);
    spark(this.spark, points);
    if (!this.detail.hidden) {
      detail(this.chart, points, this.state.percentile);
      this.chart.setAttribute("aria-label",
        `Response time of ${this.name}: now ${ms(number(this.row.t_x_ms))}, `
        + `expected at most ${ms(number(this.row.expected_t_x_ms))}; weight ${this.row.weight}`);
    }
  }
}

/** The whole section. */
export class Backends {
  constructor(context) {
    this.context = context;
    this.list = document.getElementById("list");
    this.more = document.getElementById("more");
    this.search = document.getElementById("search");
    this.rows = new Map();
    this.limit = page();
    this.shown = [];
    this.made = 0;
    this.watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const row = this.rows.get(entry.target.dataset.name);
        if (!row) continue;
        row.visible = entry.isIntersecting;
        if (row.visible) row.draw();
      }
    }, { rootMargin: "150px" });
    this.more.addEventListener("click", () => { this.limit += 180; this.render(); });
    this.search.addEventListener("input", () => { this.limit = page(); this.render(); });
    new ResizeObserver(() => this.draw()).observe(this.list);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(state) {
    this.state = state;
    this.render();
  }

  render() {
    const { state } = this;
    if (!state) return;
    const many = state.backends.length > MANY;
    this.list.dataset.size = many ? "many" : "few";
    document.getElementById("overview").hidden = !many;
    document.getElementById("search-label").hidden = !many;
    const wanted = this.search.value.trim().toLowerCase();
    const found = order(state.backends).filter((row) => row.name.toLowerCase().includes(wanted));
    const open = (row) => !this.rows.get(row.name)?.detail.hidden && this.rows.has(row.name);
    const shown = found.filter((row, i) => i < this.limit || open(row));
    this.more.hidden = shown.length === found.length;
    put(this.more, `Show more: ${found.length - shown.length} others, in no more trouble than these`);
    this.place(shown);
    for (const row of shown) this.rows.get(row.name).show(row, state);
    this.draw();
  }

  /** Put the rows in order, moving as few as possible: what has the focus keeps it. */
  place(shown) {
    const names = new Set(shown.map((row) => row.name));
    for (const [name, row] of this.rows) {
      if (names.has(name)) continue;
      this.watcher.unobserve(row.root);
      row.root.remove();
      this.rows.delete(name);
    }
    const focused = document.activeElement;
    let next = this.list.firstElementChild;
    for (const { name } of shown) {
      let row = this.rows.get(name);
      if (!row) {
        this.made += 1;
        row = new Row(name, `detail-${this.made}`, this.context);
        this.rows.set(name, row);
        this.watcher.observe(row.root);
      }
      if (row.root === next) next = next.nextElementSibling;
      else this.list.insertBefore(row.root, next);
    }
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.list.contains(focused)) {
      focused.focus({ preventScroll: true });
    }
  }

  draw() {
    if (!this.state || document.hidden) return;
    for (const row of this.rows.values()) row.draw();
    const { backends } = this.state;
    if (backends.length > MANY) {
      const canvas = document.getElementById("field");
      field(canvas, backends);
      const count = (rank) => backends.filter((row) => severity(row) === rank).length;
      const words = `${count("slow")} slow, ${count("fine") + count("load")} as expected, `
        + `${count("learning")} learning, ${count("down")} out of service`;
      canvas.setAttribute("aria-label", `All ${backends.length} backends: ${words}`);
      put(document.getElementById("field-text"), `One cell a backend, fuller the nearer to what is expected: ${words}.`);
    }
  }
}

/** The figures beside the headline. */
export function showFigures(state) {
  const rows = state.backends;
  document.getElementById("figures").hidden = !rows.length;
  const rate = rows.reduce((sum, row) => sum + row.rate_per_s, 0);
  put(document.getElementById("rate"), rate.toLocaleString("en", { maximumFractionDigits: rate < 10 ? 1 : 0 }));
  put(document.getElementById("slow"), `${rows.filter((row) => severity(row) === "slow").length}`);
  put(document.getElementById("of"), ` of ${rows.length}`);
  put(document.getElementById("moved"), (100 * moved(rows)).toFixed(0));
}
