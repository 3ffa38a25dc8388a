// The page: follows the stream, shows what it says, and carries an operator's orders.

import { ask, follow, Refused, tokens } from "./api.js";
import { Backends, showFigures } from "./backends.js";
import { headline, History, POINTS } from "./model.js";
import { Timeline } from "./timeline.js";

const at = (id) => document.getElementById(id);
const MODES = { shadow: "Shadow", enforce: "Enforcing", frozen: "Frozen" };

const history = new History();
const timeline = new Timeline();
const backends = new Backends({ history, setWeight, endWeight });
let state = null;

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function link(kind, text) {
  at("link").dataset.link = kind;
  put(at("link-text"), text);
  document.body.classList.toggle("stale", kind === "lost");
}

function toast(text) {
  at("toast").textContent = text;
  at("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { at("toast").hidden = true; }, 8000);
}

function showMode() {
  const frozen = state.mode === "frozen";
  at("mode").hidden = false;
  at("mode").dataset.mode = state.mode;
  put(at("mode"), MODES[state.mode] ?? state.mode);
  at("freeze").hidden = state.mode === "shadow";
  at("freeze").dataset.frozen = String(frozen);
  put(at("freeze"), frozen ? "Unfreeze" : "Freeze");
  const [first, second] = headline(state);
  put(at("headline"), first);
  put(at("subline"), second);
}

function show(next) {
  // A tick that could not read the balancer has no backends: what was seen last stays, with why.
  state = next.backends.length || !state ? next : { ...next, backends: state.backends };
  history.add(next);
  document.title = `${state.service} · DIAL`;
  put(at("service"), state.service);
  put(at("legend-tx"), `T${state.percentile}`);
  put(at("about"), `DIAL ${state.version} · ${state.adapter} · T${state.percentile} every ${state.interval_s} s`
    + (state.tick === null ? "" : ` · tick ${state.tick}`));
  showMode();
  showFigures(state);
  backends.show(state);
}

// ------------------------------------------------------------------ tokens and orders

/** Ask for a token; what was typed, or null. */
function askFor(title, text, ok, error = "") {
  at("ask-title").textContent = title;
  at("ask-text").textContent = text;
  at("ask-ok").textContent = ok;
  at("ask-error").textContent = error;
  at("ask-token").value = "";
  return new Promise((done) => {
    const dialog = at("ask");
    const close = (answer) => {
      dialog.removeEventListener("close", cancelled);
      at("ask-form").removeEventListener("submit", given);
      if (dialog.open) dialog.close();
      done(answer);
    };
    const cancelled = () => close(null);
    const given = (event) => { event.preventDefault(); close(at("ask-token").value.trim() || null); };
    dialog.addEventListener("close", cancelled);
    at("ask-form").addEventListener("submit", given);
    at("ask-cancel").onclick = () => dialog.close();
    dialog.showModal();
  });
}

/** Send an order; asks for the operator's token until there is one that is taken. */
async function give(path, method, title, text, ok, body) {
  let error = "";
  for (;;) {
    if (!tokens.get("operator")) {
      const token = await askFor(title, text, ok, error);
      if (token === null) return null;
      tokens.set("operator", token);
    }
    try {
      return await ask(path, { method, role: "operator", body });
    } catch (refused) {
      if (!(refused instanceof Refused)) { toast("No connection to the controller."); return null; }
      if (refused.status !== 401 && refused.code !== "forbidden") { toast(refused.message); return null; }
      tokens.forget("operator");
      error = refused.status === 401 ? "This token is not known." : refused.message;
    }
  }
}

async function freeze() {
  const frozen = state?.mode === "frozen";
  at("freeze").disabled = true;
  const answer = frozen
    ? await give("/v1/freeze", "DELETE", "Unfreeze the weights?",
      "DIAL will write weights again, from its next tick on.", "Unfreeze")
    : await give("/v1/freeze", "PUT", "Freeze the weights?",
      "They stay as they are until you unfreeze them. DIAL keeps looking.", "Freeze");
  at("freeze").disabled = false;
  at("freeze").focus();
  if (!answer || !state) return;
  state = { ...state, mode: answer.mode, frozen_since_s: answer.frozen_since_s };
  showMode();
  backends.show(state);
}

async function setWeight(name, weight, forS) {
  const answer = await give(`/v1/overrides/${encodeURIComponent(name)}`, "PUT", `Set the weight of ${name}?`,
    `${weight} for ${Math.round(forS / 60)} minutes; then DIAL decides again.`, "Set", { weight, for_s: forS });
  if (answer) toast(`${name} has weight ${weight} from the next tick on.`);
}

async function endWeight(name) {
  const answer = await give(`/v1/overrides/${encodeURIComponent(name)}`, "DELETE", `End the weight of ${name}?`,
    "DIAL decides again, from its next tick on.", "End");
  if (answer) toast(`${name} goes back with the next tick.`);
}

at("freeze").addEventListener("click", freeze);
document.addEventListener("visibilitychange", () => backends.draw());

async function load() {
  const [past, events, model] = await Promise.all([
    ask(`/v1/history?last=${POINTS}`), ask("/v1/events?last=100"), ask("/v1/model"),
  ]);
  history.load(past);
  timeline.load(events);
  put(at("model-name"), `Model ${model.name}, ${model.checksum.slice(0, 15)}`);
  const card = Object.entries({ checksum: model.checksum, ...model.card }).flatMap(([term, text]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = term.replaceAll("_", " ");
    dd.textContent = text;
    return [dt, dd];
  });
  at("card").replaceChildren(...card);
}

follow({
  onOpen: async () => { await load(); link("live", "live"); },
  onEvent: (name, data) => {
    if (name === "state") show(data);
    if (name === "decision") timeline.add(data);
  },
  onLost: (why) => link("lost", `reconnecting: ${why}`),
  onRefused: async (error) => {
    link("lost", "a token is needed");
    tokens.forget("read");
    const token = await askFor("This controller asks for a token", error.message, "Show");
    if (token) tokens.set("read", token);
    else await new Promise(() => {}); // not asked again until the page is loaded again
  },
});
