// What is shown, made of what the API says: no document here, only values and words.

export const POINTS = 180;

/** A measurement, or null where there is none ({"reason": ...}). */
export const number = (value) => (typeof value === "number" ? value : null);

// As short as a row on a phone needs them; the headline has room for a sentence.
const WORDS = {
  cpu: "CPU taken",
  net: "Network taken",
  disk: "Disk taken",
  llc: "Cache taken",
  "intra-app": "Blocks itself",
  "own-services": "Its own services",
  softirq: "Packets take CPU",
  "self-limited": "At its own quota",
  unknown: "Cause unknown",
  load: "Slower by own load",
  none: "As fast as expected",
};
const SENTENCES = {
  cpu: "a neighbour takes CPU",
  net: "a neighbour takes network",
  disk: "a neighbour takes disk",
  llc: "a neighbour takes cache",
  "intra-app": "it blocks itself",
  "own-services": "its own services take the CPU",
  softirq: "packets take the CPU",
  "self-limited": "its own quota throttles it",
  unknown: "slow, and the cause is unknown",
};
const SLOW = new Set([
  "cpu", "net", "disk", "llc", "intra-app", "own-services", "softirq", "self-limited", "unknown",
]);
const RANK = { slow: 0, down: 1, load: 2, learning: 3, fine: 4 };

/** How much a backend needs a look. */
export function severity(row) {
  if (SLOW.has(row.cause)) return "slow";
  if (!row.usable) return "down";
  if (row.cause === "load") return "load";
  if (number(row.expected_t_x_ms) === null) return "learning";
  return "fine";
}

/** The verdict in a few words. */
export function verdict(row) {
  if (!row.usable) return "Down, drained or in maintenance";
  if (row.cause === null) return "No verdict yet";
  if (row.cause === "none" && number(row.expected_t_x_ms) === null) return "Learning";
  return (WORDS[row.cause] ?? row.cause) + taken(row);
}

/** What is lost to it, where that is known. */
function taken(row) {
  const lost = number(row.rho_bg);
  return SLOW.has(row.cause) && lost !== null ? `, ${Math.round(100 * lost)} %` : "";
}

const byName = new Intl.Collator("en", { numeric: true }).compare;

/** Trouble first, then by name: a row moves when its severity changes, never for a wobble. */
export function order(rows) {
  return [...rows].sort(
    (a, b) => RANK[severity(a)] - RANK[severity(b)] || byName(a.name, b.name),
  );
}

/** Milliseconds with two or three figures. */
export function ms(value) {
  if (value === null) return "–";
  if (value >= 10_000) return `${(value / 1000).toFixed(0)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} ms`;
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
export const time = (atS) => clock.format(new Date(1000 * atS));

/** Part of the requests that goes elsewhere than configured, as a fraction. */
export function moved(rows) {
  const usable = rows.filter((row) => row.usable);
  const now = usable.reduce((sum, row) => sum + row.weight, 0);
  const then = usable.reduce((sum, row) => sum + row.weight_configured, 0);
  if (!now || !then) return 0;
  return usable.reduce(
    (sum, row) => sum + Math.abs(row.weight / now - row.weight_configured / then), 0,
  ) / 2;
}

/** The one sentence, and the one below it. */
export function headline(state) {
  const rows = state.backends;
  const slow = rows.filter((row) => severity(row) === "slow");
  const learning = rows.filter((row) => severity(row) === "learning");
  const plan = state.reason ? `${state.reason[0].toUpperCase()}${state.reason.slice(1)}.` : "";
  if (state.trouble && !rows.length) return ["The load balancer cannot be read", state.trouble];
  if (!rows.length) return ["Waiting for the first tick", ""];
  let first = `All ${rows.length} backends are as fast as expected`;
  if (rows.length === 1) first = "The backend is as fast as expected";
  if (slow.length === 1) first = `${slow[0].name}: ${SENTENCES[slow[0].cause]}${taken(slow[0])}`;
  else if (slow.length) first = `${slow.length} of ${rows.length} backends are slow`;
  else if (learning.length > rows.length / 2) first = "Learning what is normal";
  let second = plan;
  if (state.mode === "frozen") {
    first = slow.length ? `Frozen. ${first}` : "Frozen: weights stay as they are";
    second = `Nothing is written since ${time(state.frozen_since_s)}. Verdicts go on.`;
  } else if (state.mode === "shadow") {
    second = `${plan} Shadow mode: this is shown, nothing is written.`;
  }
  if (state.trouble) second = `${second} Trouble: ${state.trouble}`;
  return [first, second];
}

/** The last points of each backend, for charts. */
export class History {
  constructor() {
    this.backends = new Map();
    this.tick = null;
  }

  /** Begin from /v1/history. */
  load(history) {
    this.backends.clear();
    for (const [name, column] of Object.entries(history.backends)) {
      const points = history.at_s.map((at, i) => ({
        at, tx: column.t_x_ms[i], expected: column.expected_t_x_ms[i], weight: column.weight[i],
      }));
      this.backends.set(name, points.slice(-POINTS));
    }
    this.tick = null;
  }

  /** Go on with a state; the same tick twice is one point. */
  add(state) {
    if (state.tick === null || state.tick === this.tick) return;
    this.tick = state.tick;
    for (const row of state.backends) {
      const points = this.backends.get(row.name) ?? [];
      if (points.at(-1)?.at >= state.at_s) continue;
      points.push({
        at: state.at_s, tx: number(row.t_x_ms), expected: number(row.expected_t_x_ms), weight: row.weight,
      });
      if (points.length > POINTS) points.shift();
      this.backends.set(row.name, points);
    }
  }

  of(name) {
    return this.backends.get(name) ?? [];
  }
}
