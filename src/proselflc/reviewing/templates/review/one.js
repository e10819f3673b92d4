// One suspect at a time, with all there is to know of it.

import { $, bdi, chance, make, time, whole } from "./elements.js";
import { closeLook, curve, firstLook, glimpse, pictureOf } from "./example.js";
import { once } from "./server.js";
import { NOBODY, decision, itemAt, nameOf, session } from "./session.js";

const MOST_DETAILS = 12; // that are kept

// What is not needed at once is asked for without waiting, and left out if it cannot be had.
const details = new Map();
const detail = (index) => {
  if (!details.has(index)) {
    details.set(index, { about: once(`/api/example/${index}`), near: once(`/api/neighbours/${index}`) });
    for (const asked of Object.values(details.get(index))) asked.catch(() => details.delete(index));
    if (details.size > MOST_DETAILS) details.delete(details.keys().next().value);
  }
  return details.get(index);
};

export const showOne = (one) => {
  session.item = one;
  const given = nameOf(one.given), suggested = nameOf(one.suggested), { total, place, start } = session;
  $("place").textContent = total ? `${whole(Math.min(place + 1, total))} of ${whole(total)}` : "";
  $("question").replaceChildren(
    side("given", bdi(given)), make("span", { className: "arrow", ariaHidden: "true", textContent: "→" }),
    side("suggested", make("b", {}, bdi(suggested))));
  showStanding(one);
  $("chances").replaceChildren(...bar("Given", given, one.quality, "given"), ...bar("Suggested", suggested, one.sure, "other"));
  $("accept").firstChild.replaceChildren("Accept: it is ", bdi(suggested));
  $("keep").firstChild.replaceChildren("Keep: it is ", bdi(given));
  $("id").textContent = one.id;
  $("exhibit").replaceChildren(firstLook(one));
  $("curve").replaceChildren();
  $("likely").lastChild.replaceChildren();
  $("near-given-name").replaceChildren("Surely ", bdi(given));
  $("near-suggested-name").replaceChildren("Surely ", bdi(suggested));
  for (const id of ["near-given", "near-suggested"]) $(id).replaceChildren();
  $("near-how").textContent = "";
  $("near").hidden = !start.kind;
  const { about, near } = detail(one.index);
  about.then((found) => { if (session.item === one) showDetail(one, found); }, () => {});
  near.then((found) => { if (session.item === one) showNear(found); }, () => {});
  // What comes next is fetched while this one is looked at.
  itemAt(place + 1).then((next) => {
    if (!next || session.item !== one) return;
    detail(next.index);
    if (start.kind === "image") new Image().src = pictureOf(next, "large");
  }, () => {});
};
const side = (label, name) => make("span", { className: "side" }, make("span", { className: "label", textContent: label }), name);
export const showStanding = (one, before = "") => {
  const words = [decision(one), one.by ? `by ${one.by}` : "", one.at ? time(one.at) : ""];
  $("standing").hidden = one.label === NOBODY;
  $("standing").replaceChildren(make("strong", { textContent: before }), words.filter((text) => text).join(" · "));
};
const bar = (label, name, p, className) => {
  const fill = make("span", { className });
  fill.style.width = `${100 * (p || 0)}%`;
  return [make("dt", {}, `${label} `, bdi(name)), make("dd", {}, make("b", { textContent: chance(p) }), make("span", { className: "track", ariaHidden: "true" }, fill))];
};

const showDetail = (one, found) => {
  const looked = closeLook(one, found);
  if (looked.length) $("exhibit").replaceChildren(...looked);
  $("learning").hidden = !found.curve && !found.curveGone;
  if (found.curve) $("curve").replaceChildren(...curve(found.curve));
  else if (found.curveGone) $("curve").replaceChildren(make("p", { textContent: `The curve cannot be shown: ${found.curveGone}` }));
  $("likely").hidden = found.chances.length < 2;
  $("likely").lastChild.replaceChildren(...found.chances.map(([k, p], n) => {
    const button = make("button", { type: "button", value: k }, make("kbd", { textContent: n + 1 }), " ", bdi(nameOf(k)), make("span", { textContent: chance(p) }));
    return make("li", {}, button);
  }));
  one.likely = found.chances.map(([k]) => k);
};
const showNear = (found) => {
  for (const side of ["given", "suggested"]) {
    $(`near-${side}`).replaceChildren(...(found[side].length ? found[side].map((one) => make("li", {}, glimpse(one), make("span", { className: "id" }, bdi(one.id))))
      : [make("li", { className: "aside", textContent: "none" })]));
  }
  $("near-how").textContent = found.how === "nearest"
    ? "Nearest to it in what the model sees, among the 64 examples of each class whose labels it is surest of."
    : `The examples of each class whose labels the run is surest of, near or not: ${found.why}`;
};
