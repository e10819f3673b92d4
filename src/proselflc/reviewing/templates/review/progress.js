// The progress of the review, and decisions made elsewhere.

import { $, make, whole } from "./elements.js";
import { noteDecisions } from "./atlas.js";
import { offerPairs } from "./filters.js";
import { forget, session } from "./session.js";

export const takeOver = (state) => {
  session.line = state.line;
  session.left = state.left;
  if (state.changed === null) forget(); // too many changes to list
  for (const one of [...(state.changed || []), ...(state.done || []), ...(state.conflicts || [])]) {
    for (const held of [session.known.get(one.index), session.selected.get(one.index), session.item]) {
      if (held && held.index === one.index) Object.assign(held, { by: undefined, at: undefined }, one);
    }
  }
  noteDecisions(state.changed && [...state.changed, ...(state.done || []), ...(state.conflicts || [])]);
  const { decided, confirmed, intervalOfConfirmed: [low, high] } = state.precision;
  const settled = state.suspects - state.left;
  $("bar").max = Math.max(1, state.suspects);
  $("bar").value = settled;
  const what = session.start.isSample ? "labels of the sample" : "suspects";
  const words = [`${whole(settled)} of ${whole(state.suspects)} ${what} decided`];
  const percent = (share) => `${Math.round(100 * share)}%`;
  if (session.start.isSample) {
    if (state.rate) words.push(`${percent(state.rate[1])} of all labels are wrong (95% interval: ${percent(state.rate[0])} to ${percent(state.rate[2])})`);
  } else if (decided) words.push(`${whole(confirmed)} of ${whole(decided)} suggested labels were right (95% interval: ${Math.floor(100 * low)} to ${Math.ceil(100 * high)}%)`);
  if (state.unsure) words.push(`${whole(state.unsure)} marked “cannot tell”`);
  const [least, most] = state.remainingRange || [state.remaining, state.remaining];
  const left = state.remainingRange && least !== most ? `${whole(least)} to ${whole(most)}` : `about ${whole(most)}`;
  words.push(`estimated wrong labels that remain: ${left}, of which ${whole(Math.min(most, state.remainingSuspects))} are undecided suspects`);
  $("progress").replaceChildren(...words.map((text) => make("span", { textContent: text })));
  const { gone } = session.start;
  $("notes").hidden = !state.notes.length && !gone;
  $("notes").replaceChildren(...state.notes.map((text) => make("p", { textContent: text })));
  if (gone) $("notes").prepend(make("p", {}, make("strong", { textContent: "The examples themselves cannot be shown. " }), gone));
  offerPairs(state.pairs);
  offerUndo();
};
export const offerUndo = () => {
  for (const id of ["undo", "many-undo", "done-undo"]) $(id).disabled = !session.history.length;
};
