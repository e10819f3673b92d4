// Moving between suspects, filters and the two layouts.

import { $, chance, say, whole } from "./elements.js";
import { ALL, showFilters } from "./filters.js";
import { clear, here, layOut, moveTo, selectNext } from "./grid.js";
import { focusMap, showMap } from "./atlas.js";
import { showOne } from "./one.js";
import { takeOver } from "./progress.js";
import { ask } from "./server.js";
import { forget, isLabelled, itemAt, query, question, saveWhere, session } from "./session.js";

const FIFTY = 50;

export const show = (which) => {
  for (const id of ["one", "all", "chart", "done"]) $(id).hidden = id !== which;
  document.body.dataset.mode = session.mode;
  $("mode-one").setAttribute("aria-pressed", String(session.mode === "one"));
  $("mode-grid").setAttribute("aria-pressed", String(session.mode === "grid"));
  $("mode-map").setAttribute("aria-pressed", String(session.mode === "map"));
};

// Go to the next undecided suspect from a place on; in the view of decided suspects, to that place.
export const arrive = async (from = session.place) => {
  const { era, view } = session;
  if (session.mode === "grid") { show("all"); await layOut(); return; }
  if (session.mode === "map") { show("chart"); await showMap(); return; }
  let found = await ask(`/api/next?${query()}&offset=${from}`);
  if (view.state === "decided" && from < found.total) found = { ...found, place: from };
  if (found.place === null && from > 0) found = await ask(`/api/next?${query()}&offset=0`);
  if (era !== session.era) return;
  session.total = found.total;
  if (found.place === null) { finish(); return; }
  await goTo(found.place);
};
const goTo = async (where) => {
  const { era } = session;
  const one = await itemAt(where);
  if (era !== session.era || !one) return;
  session.place = where;
  session.isFromMap = false;
  saveWhere();
  show("one");
  showOne(one);
  say(`${question(one)}, ${chance(one.sure)} confidence. ${whole(where + 1)} of ${whole(session.total)}.`);
};
export const step = async (by) => {
  const { mode, busy, place, total, view } = session;
  if (mode !== "one" || busy) return;
  if (by < 0) { if (place > 0) await goTo(place - 1); else say("This is the first suspect."); return; }
  if (view.state === "open") await arrive(place + 1 < total ? place + 1 : 0);
  else if (place + 1 < total) await goTo(place + 1);
  else say("This is the last suspect.");
};

const finish = () => {
  session.item = null;
  const isAll = session.left === 0;
  $("done-title").textContent = isAll ? (session.start.isSample ? "The whole sample is decided" : "Every suspect is decided") : session.total ? "All suspects in this view are decided" : "No suspect matches the filters";
  $("done-text").textContent = isAll ? (session.start.isSample ? "Audit the run again, so that it uses what you have measured:" : "Train on the reviewed labels and compare the two runs:")
    : session.left === 1 ? "One suspect is undecided." : `${whole(session.left)} suspects are undecided.`;
  $("done-next").hidden = !isAll;
  $("done-next").textContent = session.start.next.join("\n\n");
  $("done-all").hidden = isAll;
  $("place").textContent = "";
  show("done");
  say($("done-title").textContent);
  const focused = document.activeElement;
  if (!focused || focused === document.body || !focused.checkVisibility()) $("done-title").focus();
};

export const filter = async (changes) => {
  session.view = { ...session.view, ...changes, line: session.line };
  session.place = 0;
  session.selected.clear();
  forget();
  const { era } = session; // a later filter wins
  showFilters();
  const state = await ask("/api/state"); // loaded suspects were discarded, so changes to them are not needed
  if (era !== session.era) return;
  session.view.line = state.line;
  takeOver(state);
  await itemAt(0);
  if (era !== session.era) return;
  say(`${whole(session.total)} suspects match.`);
  await arrive();
};
export const allThatIsLeft = () => filter(ALL);

export const setMode = async (mode, where) => {
  session.mode = mode;
  clear();
  if (mode === "grid") {
    show("all");
    await layOut();
    moveTo(where);
    $("grid").focus();
  } else if (mode === "map") {
    $("place").textContent = "";
    show("chart");
    await showMap();
    focusMap();
  } else if (session.total) {
    await goTo(where);
    $("question").focus();
  } else finish();
  saveWhere();
};
export const otherMode = () => (session.mode === "grid" ? setMode("one", here()) : setMode("grid", session.place));
export const mapOrOne = () => {
  if (session.start.hasMap) setMode(session.mode === "map" ? "one" : "map", session.mode === "grid" ? here() : session.place);
};

// Show an example wherever it is among the others.
export const open = async (index, isFromMap = false) => {
  const one = session.known.get(index) || (await ask(`/api/item/${index}`));
  if (session.mode !== "one") { session.mode = "one"; clear(); }
  session.isFromMap = isFromMap;
  show("one");
  showOne(one);
  return one;
};
$("map").addEventListener("look", async (event) => {
  const one = await open(event.detail, true);
  $("place").textContent = "";
  $("question").focus();
  say(`${question(one)}, ${chance(one.sure)} confidence.`);
});

// Select suspects of the same pair as the current one.
export const fifty = async () => {
  const one = await itemAt(here());
  if (!one) return;
  const pair = { given: isLabelled(one) ? String(one.given) : "", suggested: String(one.suggested) };
  if (session.view.given !== pair.given || session.view.suggested !== pair.suggested) {
    await filter({ ...pair, state: "open" });
    moveTo(0);
  }
  await selectNext(FIFTY);
  say(`${whole(session.selected.size)} selected: ${question(one)}.`);
};
