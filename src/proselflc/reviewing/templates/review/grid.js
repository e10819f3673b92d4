// The grid, which holds elements only for the suspects that are visible.

import { $, bdi, chance, make, say, whole } from "./elements.js";
import { glimpse } from "./example.js";
import { UNDECIDED, decision, eachFrom, isLabelled, itemAt, question, session } from "./session.js";

const TALLEST = 2e7; // pixels; browsers have a limit
const MOST_SELECTED = 500; // decisions that the server accepts in one request
const SPARE = 2; // extra rows above and below

const { selected } = session;
const cells = new Map(); // by place
let at = 0, anchor = 0; // where the keyboard is, and where a range began
let shape = { columns: 1, width: 1, height: 1, full: 0, tall: 0 };

export const here = () => at;

const measure = () => {
  const room = $("grid").clientWidth, isImage = session.start.kind === "image";
  const columns = Math.max(isImage ? 2 : 1, Math.floor(room / (isImage ? 168 : 300)));
  const height = isImage ? 232 : 176;
  const full = Math.ceil(session.total / columns) * height;
  shape = { columns, width: room / columns, height, full, tall: Math.min(full, TALLEST) };
  $("sheet").style.height = `${shape.tall}px`;
};
// How far the rows move when the grid is scrolled by one pixel.
const stretch = () => {
  const visible = $("grid").clientHeight;
  return shape.tall > visible ? (shape.full - visible) / (shape.tall - visible) : 1;
};

export const layOut = async () => {
  await itemAt(0);
  measure();
  at = Math.min(at, Math.max(0, session.total - 1));
  paint();
};
export const clear = () => {
  cells.forEach(({ element }) => element.remove());
  cells.clear();
};
export const paint = () => {
  if (session.mode !== "grid") return;
  const { total, era } = session, top = $("grid").scrollTop, begin = top * stretch();
  const first = Math.max(0, Math.floor(begin / shape.height) - SPARE) * shape.columns;
  const last = Math.min(total, (Math.ceil((begin + $("grid").clientHeight) / shape.height) + SPARE) * shape.columns);
  for (const [where, cell] of cells) {
    if (where < first || where >= last || cell.era !== era) { cell.element.remove(); cells.delete(where); }
  }
  for (let where = first; where < last; where += 1) {
    if (!cells.has(where)) cells.set(where, { element: newCell(where), era, content: "" });
    const { style } = cells.get(where).element;
    style.left = `${(where % shape.columns) * shape.width}px`;
    style.top = `${top + Math.floor(where / shape.columns) * shape.height - begin}px`;
    style.width = `${shape.width}px`;
    style.height = `${shape.height}px`;
  }
  eachFrom(first, last, fill);
  if (cells.has(at)) $("grid").setAttribute("aria-activedescendant", `cell-${at}`);
  else $("grid").removeAttribute("aria-activedescendant");
  for (const [where, { element }] of cells) element.classList.toggle("at", where === at);
  $("selected").textContent = `${whole(selected.size)} selected`;
  for (const id of ["many-accept", "many-keep", "many-pick", "many-unsure", "many-none"]) $(id).disabled = !selected.size;
  $("place").textContent = total ? `${whole(at + 1)} of ${whole(total)}` : "No suspect matches the filters.";
};
const newCell = (where) => {
  const element = make("div", { id: `cell-${where}`, className: "cell" });
  element.setAttribute("role", "option");
  element.addEventListener("click", (event) => {
    at = where;
    if (event.shiftKey) selectTo(where);
    else { anchor = where; toggle(where); }
    $("grid").focus();
  });
  element.addEventListener("dblclick", () => lookAt(where));
  $("sheet").append(element);
  return element;
};
const fill = (where, one) => {
  const cell = cells.get(where);
  if (!cell) return;
  const { element } = cell;
  element.setAttribute("aria-selected", String(selected.has(one.index)));
  element.setAttribute("aria-posinset", where + 1);
  element.setAttribute("aria-setsize", session.total);
  element.classList.toggle("decided", one.label !== UNDECIDED);
  const content = `${one.index} ${one.label}`;
  if (cell.content === content) return;
  cell.content = content;
  element.setAttribute("aria-label", `${question(one)}, ${chance(one.sure)} confidence, ${one.id}. ${decision(one) || "undecided"}`);
  element.replaceChildren(make("span", { className: "look" }, glimpse(one)),
    make("span", { className: "labels" }, ...(isLabelled(one) ? [bdi(session.names[one.given]), " → "] : ["no label → "]), make("b", {}, bdi(session.names[one.suggested]))),
    make("span", { className: "numbers", textContent: decision(one) || `${chance(one.sure)} confidence` }));
};

// Selecting.
const toggle = async (where) => {
  const one = await itemAt(where);
  if (!one) return;
  if (!selected.delete(one.index)) select(one);
  paint();
  say(`${selected.has(one.index) ? "Selected" : "Not selected"}. ${whole(selected.size)} selected in total.`);
};
const select = (one) => { if (selected.size < MOST_SELECTED) selected.set(one.index, one); };
const selectTo = async (where) => {
  const low = Math.min(anchor, where), high = Math.min(Math.max(anchor, where), low + MOST_SELECTED - 1);
  for (let k = low; k <= high; k += 1) {
    const one = await itemAt(k);
    if (one) select(one);
  }
  paint();
};
// Select the next undecided suspects.
export const selectNext = async (many) => {
  selected.clear();
  let first = -1;
  for (let k = at; k < session.total && selected.size < many; k += 1) {
    const one = await itemAt(k);
    if (!one || one.label !== UNDECIDED) continue;
    if (first < 0) first = k;
    selected.set(one.index, one);
  }
  moveTo(Math.max(first, 0));
};
export const clearSelection = () => { selected.clear(); paint(); say("Nothing is selected."); };

// Moving.
export const moveTo = (where, { extending = false } = {}) => {
  at = Math.max(0, Math.min(session.total - 1, where));
  if (!extending) anchor = at;
  const top = Math.floor(at / shape.columns) * shape.height, visible = $("grid").clientHeight;
  const begin = $("grid").scrollTop * stretch();
  if (top < begin) $("grid").scrollTop = top / stretch();
  else if (top + shape.height > begin + visible) $("grid").scrollTop = (top + shape.height - visible) / stretch();
  paint();
  if (extending) selectTo(at);
  else itemAt(at).then((one) => one && say(`${question(one)}, ${chance(one.sure)} confidence. ${decision(one)}`));
};
const lookAt = (where) => $("grid").dispatchEvent(new CustomEvent("look", { detail: where }));
let painting = false;
$("grid").addEventListener("scroll", () => {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => { painting = false; paint(); });
}, { passive: true });
new ResizeObserver(() => { if (session.mode === "grid" && session.start) { measure(); paint(); } }).observe($("grid"));
$("grid").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = Math.max(1, Math.floor($("grid").clientHeight / shape.height));
  const goes = {
    ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + shape.columns, ArrowUp: at - shape.columns,
    PageDown: at + rows * shape.columns, PageUp: at - rows * shape.columns, Home: 0, End: session.total - 1,
  };
  if (event.key in goes) { event.preventDefault(); event.stopPropagation(); moveTo(goes[event.key], { extending: event.shiftKey }); }
  else if (event.key === " ") { event.preventDefault(); toggle(at); }
  else if (event.key === "Enter") { event.preventDefault(); lookAt(at); }
});
