// Questions to the server, one address away from this page and no other.

const token = new URLSearchParams(location.search).get("token");
const GONE =
  "The server does not answer. Is `bayesrnn serve` still running? What you gave is kept; " +
  "when it runs again, ask once more.";
const TRIES = 30;

async function request(path, { waiting = () => {}, ...init } = {}) {
  const headers = { ...init.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await fetch(path, { ...init, headers, credentials: "omit", cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error(GONE);
    }
    if (response.status === 503 && attempt < TRIES) {
      waiting();
      await pause(1000 * Number(response.headers.get("Retry-After") ?? 1), init.signal);
      continue;
    }
    const found = await response
      .json()
      .catch(() => ({ error: `The server answered ${response.status}.` }));
    if (!response.ok) throw new Error(found.error ?? `The server answered ${response.status}.`);
    return found;
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(new DOMException("not wanted any more", "AbortError"));
    if (signal?.aborted) stop();
    setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** The runs of the server. */
export const allRuns = () => request("/api/runs");

/** How far the training of a run has come. */
export const training = (run) => request(`/api/runs/${run.number}/training`);

/** The answer of a run to a question: its options, and maybe a file with it. */
export function ask(run, question, options = {}, { content, signal, waiting } = {}) {
  const path = `/api/runs/${run.number}/${question}`;
  const query = content === undefined ? "" : `?${new URLSearchParams(options)}`;
  const type = content === undefined ? "application/json" : "application/octet-stream";
  const body = content === undefined ? JSON.stringify(options) : content;
  return request(path + query, {
    method: "POST",
    headers: { "Content-Type": type },
    body,
    signal,
    waiting,
  });
}
