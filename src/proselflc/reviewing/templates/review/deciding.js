// Deciding: the page waits until a decision is on disk, and never overwrites another reviewer's decision without asking.

import { $, say, time, whole } from "./elements.js";
import { paint } from "./grid.js";
import { arrive, open, setMode } from "./moving.js";
import { offerUndo, takeOver } from "./progress.js";
import { send } from "./server.js";
import { UNSURE, nameOf, question, session } from "./session.js";

const working = async (work) => {
  if (session.busy) return;
  session.busy = true;
  document.body.classList.add("busy");
  try {
    await work();
  } finally {
    session.busy = false;
    document.body.classList.remove("busy");
  }
};

// Decide about suspects: `labelOf` returns the class of each, or null for "cannot tell".
export const settle = (items, labelOf) => items.length && working(async () => {
  let list = items.map((one) => ({ index: one.index, label: labelOf(one), base: one.line }));
  const own = new Map(list.map((one) => [one.index, one.label ?? UNSURE]));
  const written = [];
  let left = 0; // conflicts in which the other decision stays
  for (;;) {
    const answer = await send(session.line, list);
    written.push(...answer.done.map(({ index, line }) => ({ index, line })));
    const against = answer.conflicts.filter((one) => own.get(one.index) !== one.label)
    takeOver(answer);
    if (!against.length) break;
    if (!(await confirmOverwrite(against, own))) { left = against.length; break; }
    list = against.map((one) => ({ ...list.find((sent) => sent.index === one.index), base: one.line }));
  }
  if (written.length) session.history.push(written);
  offerUndo();
  const words = left ? `${left === 1 ? "One decision was" : `${whole(left)} decisions were`} left unchanged.`
    : items.length === 1 ? `${nameOf(list[0].label)}.` : `${whole(items.length)} decided.`;
  if (session.mode === "grid") {
    session.selected.clear();
    paint();
    say(words);
  } else if (session.isFromMap) {
    await setMode("map");
    say(words);
  } else {
    await arrive(session.view.state === "decided" ? session.place + 1 : session.place);
    say(`${words} ${$("said").textContent}`);
  }
});

// Ask whether to replace decisions that another reviewer has made in the meantime.
const confirmOverwrite = (against, own) => new Promise((answered) => {
  const [first] = against, isOne = against.length === 1, by = first.by || "another reviewer";
  const theirs = nameOf(first.label), mine = nameOf(own.get(first.index));
  $("conflict-text").textContent = isOne
    ? `${by} decided “${theirs}” for this example${first.at ? ` (${time(first.at)})` : ""} after you loaded it. Your decision is “${mine}”.`
    : `${whole(against.length)} of these examples were decided differently after you loaded them; ${by} decided “${theirs}” for the first. Those decisions are unchanged; your other decisions are saved.`;
  $("conflict-theirs").textContent = isOne ? `Keep “${theirs}”` : "Keep those decisions";
  $("conflict-mine").textContent = isOne ? `Use my decision, “${mine}”` : "Use my decisions";
  const close = (isMine) => () => { $("conflict").close(); answered(isMine); };
  $("conflict-theirs").onclick = close(false);
  $("conflict-mine").onclick = close(true);
  $("conflict").oncancel = () => answered(false);
  $("conflict").showModal();
});

export const undo = () => session.history.length && working(async () => {
  const last = session.history[session.history.length - 1];
  const answer = await send(session.line, last.map(({ index, line }) => ({ index, base: line, undo: true })));
  session.history.pop();
  takeOver(answer);
  const stay = answer.conflicts.length;
  const words = stay === last.length ? "Not undone: another reviewer has changed the decision."
    : stay ? `Undone, except for ${whole(stay)} that another reviewer has changed.` : "Undone.";
  if (session.mode === "grid") {
    paint();
    say(words);
    return;
  }
  const [{ index }] = last;
  const one = await open(index);
  say(`${words} ${question(one)}.`);
});
