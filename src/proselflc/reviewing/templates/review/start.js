// The entry point of the review page: keys, buttons and the first load.

import "./theme.js";
import { settle, undo } from "./deciding.js";
import { $, bdi, make, option } from "./elements.js";
import { changes, controls, offerClasses, offerLists, showFilters } from "./filters.js";
import { clearSelection, here, paint } from "./grid.js";
import { remember, remembered } from "./memory.js";
import { allThatIsLeft, arrive, fifty, filter, mapOrOne, otherMode, setMode, step } from "./moving.js";
import { showStanding } from "./one.js";
import { enlarge } from "./photo.js";
import { pick } from "./picker.js";
import { takeOver } from "./progress.js";
import { ask, once } from "./server.js";
import { goBack, isLabelled, itemAt, session } from "./session.js";

const isGrid = () => session.mode === "grid";
const chosen = () => {
  if (isGrid()) return [...session.selected.values()];
  return session.item?.isOpen && !$("one").hidden ? [session.item] : [];
};
const actions = {
  a: () => settle(chosen(), (one) => one.suggested),
  k: () => settle(chosen().filter(isLabelled), (one) => one.given),
  u: () => settle(chosen(), () => null),
  c: () => pick(chosen()),
  s: () => step(1), ArrowRight: () => step(1),
  b: () => step(-1), ArrowLeft: () => step(-1),
  z: undo,
  g: otherMode,
  m: mapOrOne,
  f: () => (isGrid() ? fifty() : enlarge()),
  p: () => { $("filters").open = true; controls.pair.focus(); },
  Escape: () => { if (isGrid()) clearSelection(); else if (session.isFromMap) setMode("map"); },
  "?": () => $("keys").showModal(),
};
for (const n of [1, 2, 3, 4, 5]) {
  actions[n] = () => {
    const label = session.item?.likely?.[n - 1];
    if (!isGrid() && label !== undefined) settle(chosen(), () => label);
  };
}
document.addEventListener("keydown", (event) => {
  if (!session.start || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const field = event.target.closest("input, select, textarea, summary");
  // For a moment, the focus is still in a dialog that was just closed.
  if (document.querySelector("dialog[open]") || (field && field.checkVisibility())) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (name.length === 1 && !$("keys-on").checked) return;
  if (!Object.hasOwn(actions, name) || (name.startsWith("Arrow") && event.target.closest(".scroll, pre"))) return;
  event.preventDefault();
  actions[name]();
});

for (const [id, name] of Object.entries({
  accept: "a", keep: "k", pick: "c", unsure: "u", back: "b", skip: "s", undo: "z", fifty: "f", "keys-open": "?",
  "many-accept": "a", "many-keep": "k", "many-pick": "c", "many-unsure": "u", "many-none": "Escape", "many-undo": "z", "done-undo": "z",
})) $(id).addEventListener("click", () => actions[name]());
$("likely").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) settle(chosen(), () => Number(button.value));
});
$("done-all").addEventListener("click", allThatIsLeft);
$("grid").addEventListener("look", (event) => setMode("one", event.detail));
$("mode-one").addEventListener("click", () => session.mode === "one" || setMode("one", isGrid() ? here() : session.place));
$("mode-grid").addEventListener("click", () => isGrid() || setMode("grid", session.place));
$("mode-map").addEventListener("click", () => session.mode === "map" || mapOrOne());
$("picker-close").addEventListener("click", () => $("picker").close());
$("keys-close").addEventListener("click", () => $("keys").close());
$("keys-on").checked = remembered(localStorage, "proselflc-keys", true) !== false;
$("keys-on").addEventListener("change", () => remember(localStorage, "proselflc-keys", $("keys-on").checked));
$("controls").addEventListener("submit", (event) => event.preventDefault());
$("controls").addEventListener("change", (event) => {
  const changed = changes(event.target);
  if (Object.keys(changed).length) filter(changed);
});
$("controls").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.preventDefault();
  $(isGrid() ? "grid" : session.item ? "question" : "done-title").focus();
});

// Decisions may have been made in another window.
addEventListener("focus", async () => {
  if (!session.start || session.busy) return;
  const { item } = session, line = item?.line;
  try { takeOver(await once(`/api/state?since=${session.line}`)); } catch { return; }
  if (isGrid()) paint();
  else if (item && item === session.item && item.line !== line) showStanding(item, "Decided in another window: ");
});

const start = session.start = await ask("/api/start");
session.names = start.names;
session.history = start.recent;
session.view.line = start.line;
document.title = $("title").textContent = `Review of ${start.title}`;
$("run").textContent = start.run;
$("mode-map").hidden = !start.hasMap;
$("sample-note").hidden = !start.isSample;
const [first] = start.warnings;
$("audit").hidden = !first && !start.about.length;
$("audit").firstChild.append(make("strong", { textContent: first ? "Careful. " : "Audit. " }), bdi(first || start.about[0] || ""));
$("audit").lastChild.append(make("ul", {}, ...start.warnings.map((text) => make("li", {}, bdi(text)))), ...start.about.map((text) => make("p", {}, bdi(text))));
document.body.dataset.kind = start.kind || "none";
offerClasses();
offerLists();
if (matchMedia("(max-width: 48rem)").matches) $("filters").open = false;
if (start.isSample) {
  controls.order.prepend(option("drawn", "as drawn")); // any beginning of a random order is itself a random sample
  session.view.order = "drawn";
}
if (!start.suspects) [session.view.among] = Object.keys(start.listed);
goBack(remembered(sessionStorage, "proselflc-where", null));
takeOver(start);
showFilters();
await itemAt(0);
session.place = Math.min(session.place, Math.max(0, session.total - 1));
await (isGrid() ? setMode("grid", session.place) : arrive());
document.body.classList.add("ready");
