// The controller's API: requests with tokens, and the live stream.
//
// The stream is read with fetch, because EventSource can send no token.

const SILENCE_MS = 12_000; // the stream says something every 5 s
const RETRY_MS = [500, 1000, 2000, 5000, 10_000];

/** An answer that is not a success: its code for programs, its message for people. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Tokens live in this tab only: never in a URL, a cookie or local storage. */
export const tokens = {
  get: (role) => sessionStorage.getItem(`dial-${role}-token`),
  set: (role, token) => sessionStorage.setItem(`dial-${role}-token`, token),
  forget: (role) => sessionStorage.removeItem(`dial-${role}-token`),
};

function headers(role) {
  const token = tokens.get(role) ?? (role === "read" ? tokens.get("operator") : null);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function refusal(answer) {
  try {
    const { error } = await answer.json();
    return new Refused(answer.status, error.code, error.message);
  } catch {
    return new Refused(answer.status, "http", `the service answered ${answer.status}`);
  }
}

/** One request; the JSON of its answer. */
export async function ask(path, { method = "GET", role = "read", body } = {}) {
  const answer = await fetch(path, {
    method,
    headers: headers(role),
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
  });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

/** Splits a stream of bytes into server-sent events and hands over each. */
export async function readEvents(body, onEvent, onBytes = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onBytes();
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      let name = "message";
      const data = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length) onEvent(name, JSON.parse(data.join("\n")));
    }
  }
}

/** Follows the stream for ever: onOpen before the first event of each connection. */
export async function follow({ onOpen, onEvent, onLost, onRefused }) {
  for (let failures = 0; ; failures += 1) {
    const abort = new AbortController();
    let timer = setTimeout(() => abort.abort(), SILENCE_MS);
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      const answer = await fetch("/v1/stream", {
        headers: headers("read"), cache: "no-store", signal: abort.signal,
      });
      if (!answer.ok) throw await refusal(answer);
      await onOpen();
      failures = 0;
      await readEvents(answer.body, onEvent, alive);
      onLost("the controller ended the connection");
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        await onRefused(error);
        failures = -1;
      } else {
        onLost(error instanceof Refused ? error.message : "no connection to the controller");
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
    const wait = RETRY_MS[Math.min(Math.max(failures, 0), RETRY_MS.length - 1)];
    await new Promise((done) => setTimeout(done, wait));
  }
}
