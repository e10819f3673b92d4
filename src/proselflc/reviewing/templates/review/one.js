// One suspect at a time, with everything that is known about it.

import { $, bdi, chance, make, time, whole } from "./elements.js";
import { closeLook, curve, firstLook, glimpse, pictureOf } from "./example.js";
import { once } from "./server.js";
import { UNDECIDED, decision, isLabelled, itemAt, nameOf, session } from "./session.js";

const ACTIONS = {
  change: "· the audit would change it",
  review: "· the audit asks for a review",
};
const MOST_DETAILS = 12; // examples whose details are kept

// Details are loaded in the background, and omitted if that fails.
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
  const given = isLabelled(one) ? nameOf(one.given) : "no label", suggested = nameOf(one.suggested), { total, place, start } = session;
  $("place").textContent = total ? `${whole(Math.min(place + 1, total))} of ${whole(total)}` : "";
  $("question").replaceChildren(
    side("given", bdi(given)), make("span", { className: "arrow", ariaHidden: "true", textContent: "→" }),
    side("suggested", make("b", {}, bdi(suggested))));
  showStanding(one);
  $("chances").replaceChildren(...(isLabelled(one) ? bar("Given", given, one.quality, "given") : []), ...bar("Suggested", suggested, one.sure, "other"));
  $("action").textContent = ACTIONS[one.action] || "";
  $("accept").firstChild.replaceChildren("Accept: ", bdi(suggested));
  $("keep").firstChild.replaceChildren("Keep: ", bdi(given));
  $("accept").hidden = one.given === one.suggested;
  $("keep").hidden = !isLabelled(one);
  $("near-given-name").parentElement.hidden = !isLabelled(one);
  for (const id of ["accept", "keep", "pick", "unsure"]) $(id).disabled = !one.isOpen;
  $("closed").hidden = one.isOpen;
  $("id").textContent = one.id;
  $("copies").hidden = true;
  $("exhibit").replaceChildren(firstLook(one));
  $("curve").replaceChildren();
  $("likely").lastChild.replaceChildren();
  $("near-given-name").replaceChildren("Confidently ", bdi(given));
  $("near-suggested-name").replaceChildren("Confidently ", bdi(suggested));
  for (const id of ["near-given", "near-suggested"]) $(id).replaceChildren();
  $("near-how").textContent = "";
  $("near").hidden = !start.kind;
  const { about, near } = detail(one.index);
  about.then((found) => { if (session.item === one) showDetail(one, found); }, () => {});
  near.then((found) => { if (session.item === one) showNear(found); }, () => {});
  // Load the next suspect while this one is shown.
  itemAt(place + 1).then((next) => {
    if (!next || session.item !== one) return;
    detail(next.index);
    if (start.kind === "image") new Image().src = pictureOf(next, "large");
  }, () => {});
};
const side = (label, name) => make("span", { className: "side" }, make("span", { className: "label", textContent: label }), name);
export const showStanding = (one, before = "") => {
  const words = [decision(one), one.by ? `by ${one.by}` : "", one.at ? time(one.at) : ""];
  $("standing").hidden = one.label === UNDECIDED;
  $("standing").replaceChildren(make("strong", { textContent: before }), words.filter((text) => text).join(" · "));
};
const bar = (label, name, p, className) => {
  const fill = make("span", { className });
  fill.style.width = `${100 * (p || 0)}%`;
  return [make("dt", {}, `${label} `, bdi(name)), make("dd", {}, make("b", { textContent: chance(p) }), make("span", { className: "track", ariaHidden: "true" }, fill))];
};

const showDetail = (one, found) => {
  const others = found.copies.flatMap(({ id, given }) => [", ", bdi(id), " (", bdi(nameOf(given)), ")"]);
  $("copies").hidden = !others.length;
  $("copies").replaceChildren("Same content: ", ...others.slice(1));
  const content = closeLook(one, found);
  if (content.length) $("exhibit").replaceChildren(...content);
  $("learning").hidden = !found.curve && !found.curveGone;
  if (found.curve) $("curve").replaceChildren(...curve(found.curve));
  else if (found.curveGone) $("curve").replaceChildren(make("p", { textContent: `The learning curve is not available: ${found.curveGone}.` }));
  $("likely").hidden = found.chances.length < 2;
  $("likely").lastChild.replaceChildren(...found.chances.map(([k, p], n) => {
    const button = make("button", { type: "button", value: k, disabled: !one.isOpen }, make("kbd", { textContent: n + 1 }), " ", bdi(nameOf(k)), make("span", { textContent: chance(p) }));
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
    ? "The nearest examples in the model's feature space, among the 64 most confident labels of each class."
    : `The most confident labels of each class; they may not be similar, because the model cannot be used: ${found.why}.`;
};
