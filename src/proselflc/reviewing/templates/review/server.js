// Requests to the server.

import { $ } from "./elements.js";

class Refused extends Error {}

// Send a GET request, or a POST request if there is a body.
export const once = async (path, body) => {
  const sent = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...sent });
  } catch {
    throw new Refused("The server does not respond. Is proselflc review still running?");
  }
  if (answer.status === 401) {
    throw new Refused("The server was restarted. Open the new address that it printed.");
  }
  let value;
  try { value = await answer.json(); } catch { value = {}; }
  if (!answer.ok) throw new Refused(value.error || `The server refused the request (status ${answer.status}).`);
  return value;
};

// Repeat a request until it is answered; repeating it has no further effect.
export const ask = async (path, body) => {
  for (;;) {
    try {
      const value = await once(path, body);
      $("lost").hidden = true;
      return value;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      $("lost-what").textContent = body === undefined ? "Not loaded yet." : "Not saved yet.";
      $("lost-why").textContent = error.message;
      $("lost").hidden = false;
      await new Promise((go) => {
        const later = setTimeout(go, 2000);
        $("retry").addEventListener("click", () => { clearTimeout(later); go(); }, { once: true });
      });
    }
  }
};

// Decisions are sent with a key, which stays the same when the request is repeated.
export const send = (since, decisions) => {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  const key = [...bytes].map((n) => n.toString(16).padStart(2, "0")).join("");
  return ask("/api/decide", { key, since, decisions });
};
