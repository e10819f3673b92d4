// The state of the page: the suspects in view, and the position among them.

import { ask } from "./server.js";
import { remember } from "./memory.js";

export const UNDECIDED = -1, UNSURE = -2; // in place of a class id
const PAGE = 100, MOST_PAGES = 80;

export const session = {
  start: null, // constant while the page is open
  names: [], // of the classes
  line: 0, // of review.jsonl up to which decisions are known
  left: 0, // undecided suspects
  busy: false,
  history: [], // requests that can be undone, the latest last
  view: { among: "suspects", given: "", suggested: "", low: 0, high: 1, state: "open", order: "quality", line: 0 },
  total: 0, // suspects in the view
  mode: "one", // or "grid" or "map"
  isFromMap: false, // whether the suspect that is shown large was opened there
  place: 0, // in the view
  item: null, // the suspect that is shown large
  selected: new Map(), // suspects of the grid, by index
  known: new Map(), // suspects that were loaded, by index
  era: 0, // increases when loaded suspects are discarded
};

export const query = () => new URLSearchParams(session.view).toString();
export const saveWhere = () => {
  const { start: { run, isSample }, view, mode, place } = session;
  remember(sessionStorage, "proselflc-where", { run, isSample, view, mode, place });
};
export const goBack = (where) => {
  const { run, isSample, line } = session.start;
  if (!where || where.run !== run || where.isSample !== isSample || where.view.line > line) return;
  const mode = where.mode === "map" && !session.start.hasMap ? "one" : where.mode;
  Object.assign(session, { view: where.view, mode, place: where.place });
};

// Load the suspects of the view one page at a time.
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
// Call `tell` with place and suspect for each page in a range, as soon as it is loaded.
export const eachFrom = (first, last, tell) => {
  const { era } = session;
  for (let number = Math.floor(first / PAGE); number * PAGE < last; number += 1) {
    page(number).then((items) => {
      if (era === session.era) items.forEach((one, k) => tell(number * PAGE + k, one));
    });
  }
};

// Texts about a suspect.
// An example without a label has the given class -1.
export const isLabelled = (one) => one.given >= 0;
export const nameOf = (label) => (label === null || label === UNSURE ? "cannot tell" : session.names[label]);
export const question = (one) => !isLabelled(one) ? `No label, suggested ${nameOf(one.suggested)}` : `Given ${nameOf(one.given)}, suggested ${nameOf(one.suggested)}`;
export const decision = (one) => {
  if (one.label === UNDECIDED) return "";
  if (one.label === UNSURE) return "cannot tell";
  if (one.label === one.given) return `kept: ${nameOf(one.given)}`;
  return `${one.label === one.suggested ? "accepted" : "changed"}: ${nameOf(one.label)}`;
};
