// Deciding: nothing goes on before it is on disk, and nobody's decision is replaced unseen.

import { $, say, time, whole } from "./elements.js";
import { paint } from "./grid.js";
import { arrive, show } from "./moving.js";
import { showOne } from "./one.js";
import { offerUndo, takeOver } from "./progress.js";
import { ask, send } from "./server.js";
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

// Decide about suspects: `labelOf` says of each its class, null for somebody who cannot tell.
export const settle = (items, labelOf) => items.length && working(async () => {
  let list = items.map((one) => ({ index: one.index, label: labelOf(one), base: one.line }));
  const said = new Map(list.map((one) => [one.index, one.label ?? UNSURE]));
  const written = [];
  let left = 0; // as others have decided
  for (;;) {
    const answer = await send(session.line, list);
    written.push(...answer.done.map(({ index, line }) => ({ index, line })));
    const against = answer.conflicts.filter((one) => said.get(one.index) !== one.label); // who says the same is not
    takeOver(answer);
    if (!against.length) break;
    if (!(await insists(against, said))) { left = against.length; break; }
    list = against.map((one) => ({ ...list.find((own) => own.index === one.index), base: one.line }));
  }
  if (written.length) session.history.push(written);
  offerUndo();
  const words = left ? `${left === 1 ? "One is" : `${whole(left)} are`} left as decided before.`
    : items.length === 1 ? `${nameOf(list[0].label)}.` : `${whole(items.length)} decided.`;
  if (session.mode === "grid") {
    session.selected.clear();
    paint();
    say(words);
  } else {
    await arrive(session.view.state === "decided" ? session.place + 1 : session.place);
    say(`${words} ${$("said").textContent}`);
  }
});

// Whether somebody wants their own decisions although others have decided meanwhile.
const insists = (against, said) => new Promise((answered) => {
  const [first] = against, isOne = against.length === 1, by = first.by || "somebody";
  const theirs = nameOf(first.label), mine = nameOf(said.get(first.index));
  $("conflict-text").textContent = isOne
    ? `“${theirs}” was decided about this one by ${by}${first.at ? ` (${time(first.at)})` : ""} after you had loaded it. You say “${mine}”.`
    : `${whole(against.length)} of these were decided otherwise after you had loaded them, the first as “${theirs}” by ${by}. They were left as they are; the others are saved.`;
  $("conflict-theirs").textContent = isOne ? `Leave “${theirs}”` : "Leave them as they are";
  $("conflict-mine").textContent = isOne ? `Use mine, “${mine}”` : "Use my decisions";
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
  const words = stay === last.length ? "Not undone: somebody else has decided anew."
    : stay ? `Undone, but for ${whole(stay)} about which somebody else has decided anew.` : "Undone.";
  if (session.mode === "grid") {
    paint();
    say(words);
    return;
  }
  const [{ index }] = last;
  const one = session.known.get(index) || (await ask(`/api/item/${index}`));
  show("one");
  showOne(one);
  say(`${words} ${question(one)}.`);
});
