// An example: its picture, its text or its columns, and how it was learned.

import { bdi, chance, drawn, make, number, whole } from "./elements.js";
import { isLabelled, nameOf, session } from "./session.js";

const PIXELATED = 64; // pixels; smaller pictures are enlarged without smoothing

export const picture = (one, size) => {
  const image = make("img", { alt: size === "large" ? `Example ${one.id}` : "", decoding: "async" });
  image.addEventListener("load", () => {
    image.classList.toggle("pixels", Math.max(image.naturalWidth, image.naturalHeight) <= PIXELATED);
  });
  image.addEventListener("error", () => image.replaceWith(make("span", { className: "blank", textContent: "no picture" })));
  image.src = pictureOf(one, size);
  return image;
};
export const pictureOf = (one, size) => `/picture/${size}/${one.index}`;

// The large view, before the details are loaded.
export const firstLook = (one) => {
  if (session.start.kind === "image") {
    const enlarge = make("button", { type: "button", className: "enlarge", title: "Show the picture in full size (F)" }, picture(one, "large"));
    enlarge.addEventListener("click", () => enlarge.dispatchEvent(new CustomEvent("enlarge", { bubbles: true })));
    return enlarge;
  }
  if (session.start.kind) return make("p", { className: "text", textContent: one.text || "" });
  return make("p", { className: "blank", textContent: "The example itself cannot be shown." });
};

// The large view with its details; empty for a picture, which has none.
export const closeLook = (one, found) => {
  const more = (many, what) => (many ? [make("p", { className: "aside", textContent: `${whole(many)} more ${what} are omitted.` })] : []);
  if (session.start.kind === "text") {
    return [make("p", { className: "text", dir: "auto", textContent: found.text }), ...more(found.cut, "characters")];
  }
  if (session.start.kind === "table") {
    const scroll = make("div", { className: "scroll", tabIndex: 0, ariaLabel: "Columns of the example" }, columns(one, found.columns));
    scroll.setAttribute("role", "region");
    return [scroll, ...more(found.moreColumns, "columns")];
  }
  return [];
};
// A number of a table of numbers, or the text of any other cell.
const cell = (value) => (typeof value === "string" ? value : number(value));
const columns = (one, list) => {
  const classes = isLabelled(one) ? ["given", "suggested"] : ["suggested"];
  const head = ["column", "this example", ...classes.map((which) => `typical ${nameOf(one[which])}`)];
  const typical = (usual) => (typeof usual === "string" ? usual : `${number(usual[0])} ±\u00a0${number(usual[1])}`);
  return make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, bdi(text))))),
    make("tbody", {}, ...list.map((row) => make("tr", {}, make("th", { scope: "row" }, bdi(row.name)),
      make("td", {}, make("b", { dir: "auto", textContent: cell(row.value) })), ...classes.map((which) => make("td", { textContent: typical(row[which]) }))))));
};

// The small view, in a list.
export const glimpse = (one) => {
  if (session.start.kind === "image") return picture(one, "small");
  if (session.start.kind === "text") return make("span", { className: "text", dir: "auto", textContent: one.text || "" });
  if (session.start.kind === "table") {
    return make("span", { className: "text" }, ...(one.columns || []).flatMap((row) => [bdi(row.name), ` ${cell(row.value)} `, make("br")]));
  }
  return make("span", { className: "blank", textContent: "not shown" });
};

// The learning curve, p from 0 to 1 over the epochs.
const WIDE = 300, TALL = 80;
export const curve = ({ epochs, given, other }) => {
  const summary = `Over ${epochs} epochs, the probability of the given label was ${ends(given)}; that of the best other label was ${ends(other)}.`;
  const label = (className, textContent) => make("span", { className, textContent, ariaHidden: "true" });
  return [
    label("top", "100%"), label("bottom", "0%"),
    drawn("svg", { class: "curve", viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": summary },
      drawn("path", { class: "frame", d: `M0 0h${WIDE}M0 ${TALL}h${WIDE}` }),
      drawn("path", { class: "other", d: path(other) }), drawn("path", { class: "given", d: path(given) })),
    label("first", "epoch 1"), label("last", epochs > 1 ? whole(epochs) : ""),
  ];
};
const path = (p) => {
  let text = "", isOn = false;
  p.forEach((value, k) => {
    if (value === null) { isOn = false; return; }
    const x = (WIDE * (p.length > 1 ? k / (p.length - 1) : 0)).toFixed(1), y = (TALL * (1 - value)).toFixed(1);
    text += `${isOn ? "L" : "M"}${x} ${y}${isOn || p[k + 1] != null ? "" : "h.1"}`; // a single point is a dot
    isOn = true;
  });
  return text;
};
const ends = (p) => {
  const known = p.filter((value) => value !== null);
  return known.length ? `${chance(known[0])} at first and ${chance(known[known.length - 1])} at the end` : "not recorded";
};
