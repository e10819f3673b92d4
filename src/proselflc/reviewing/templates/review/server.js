// Asking the server.

import { $ } from "./elements.js";

class Refused extends Error {}

// A question (GET), or with a body a request (POST).
export const once = async (path, body) => {
  const sent = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...sent });
  } catch {
    throw new Refused("The server does not answer: is proselflc review still running?");
  }
  if (answer.status === 401) {
    throw new Refused("The server was started anew: open the address that it has printed in this browser.");
  }
  let value;
  try { value = await answer.json(); } catch { value = {}; }
  if (!answer.ok) throw new Refused(value.error || `The server refused (${answer.status}).`);
  return value;
};

// Until it is answered nothing goes on; asking twice does nothing twice.
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

// Decisions are sent under a key, the same however often they are sent.
export const send = (since, decisions) => {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  const key = [...bytes].map((n) => n.toString(16).padStart(2, "0")).join("");
  return ask("/api/decide", { key, since, decisions });
};
