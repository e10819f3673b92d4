// What is known: the suspects that are gone through, and where somebody is among them.

import { ask } from "./server.js";
import { remember } from "./memory.js";

export const NOBODY = -1, UNSURE = -2; // in place of the class that was decided
const PAGE = 100, MOST_PAGES = 80;

export const session = {
  start: null, // what does not change
  names: [], // of the classes
  line: 0, // of review.jsonl that is known
  left: 0, // suspects about which nothing is decided
  busy: false,
  history: [], // requests that can be taken back, the last one last
  view: { given: "", suggested: "", low: 0, high: 1, state: "open", order: "quality", line: 0 },
  total: 0, // suspects in the view
  mode: "one",
  place: 0, // in the view
  item: null, // the suspect that is shown large
  selected: new Map(), // suspects of the grid, by index
  known: new Map(), // suspects that were loaded, by index
  era: 0, // of what was loaded
};

export const query = () => new URLSearchParams(session.view).toString();
export const saveWhere = () => {
  const { start: { run, isSample }, view, mode, place } = session;
  remember(sessionStorage, "proselflc-where", { run, isSample, view, mode, place });
};
export const goBack = (where) => {
  const { run, isSample, line } = session.start;
  if (!where || where.run !== run || where.isSample !== isSample || where.view.line > line) return;
  Object.assign(session, { view: where.view, mode: where.mode, place: where.place });
};

// Suspects of the view, by place, a page at a time.
let pages = new Map();
export const forget = () => {
  pages = new Map();
  session.known = new Map();
  session.era += 1;
};
const page = (number) => {
  if (!pages.has(number)) {
    const { era, known } = session;
    const asked = ask(`/api/items?${query()}&offset=${number * PAGE}&limit=${PAGE}`).then((answer) => {
      if (era === session.era) session.total = answer.total;
      for (const one of answer.items) known.set(one.index, one);
      return answer.items;
    });
    pages.set(number, asked);
    if (pages.size > MOST_PAGES) {
      const oldest = pages.keys().next().value;
      pages.get(oldest).then((items) => items.forEach((one) => known.delete(one.index)));
      pages.delete(oldest);
    }
  }
  return pages.get(number);
};
export const itemAt = async (where) => (await page(Math.floor(where / PAGE)))[where % PAGE];
// Calls back with place and suspect, for every page from one place to another when it is there.
export const eachFrom = (first, last, tell) => {
  const { era } = session;
  for (let number = Math.floor(first / PAGE); number * PAGE < last; number += 1) {
    page(number).then((items) => {
      if (era === session.era) items.forEach((one, k) => tell(number * PAGE + k, one));
    });
  }
};

// Words about a suspect.
export const nameOf = (label) => (label === null || label === UNSURE ? "cannot tell" : session.names[label]);
export const question = (one) => `Given ${nameOf(one.given)}, suggested ${nameOf(one.suggested)}`;
export const decision = (one) => {
  if (one.label === NOBODY) return "";
  if (one.label === UNSURE) return "cannot tell";
  if (one.label === one.given) return `kept: ${nameOf(one.given)}`;
  return `${one.label === one.suggested ? "accepted" : "changed"}: ${nameOf(one.label)}`;
};
