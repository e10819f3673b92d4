// The filters: suspects by pair, class, confidence and state, and their order.

import { $, option, whole } from "./elements.js";
import { session } from "./session.js";

export const controls = $("controls").elements;

export const offerClasses = () => {
  for (const control of [controls.given, controls.suggested]) {
    const classes = session.names.map((name, k) => option(String(k), name));
    control.replaceChildren(option("", "any class"), ...classes);
  }
};
const LISTS = {
  unlabelled: "without a label", conflicting: "conflicting duplicates", duplicates: "all duplicates",
  in_test: "also in the test set", outliers: "outliers",
};
export const offerLists = () => {
  const { listed } = session.start;
  const known = Object.keys(LISTS).filter((name) => listed[name]);
  const lists = known.map((name) => option(name, `${LISTS[name]} (${whole(listed[name])})`));
  controls.among.replaceChildren(option("suspects", "suspects"), ...lists);
  $("among").hidden = !known.length;
};
export const offerPairs = (pairs) => {
  const { names, view: { given, suggested } } = session;
  const chosen = given !== "" && suggested !== "" ? `${given} ${suggested}` : "";
  const listed = pairs.map(([g, s, , left]) => option(`${g} ${s}`, `${names[g]} → ${names[s]} (${whole(left)} left)`));
  if (chosen && !pairs.some(([g, s]) => `${g} ${s}` === chosen)) {
    listed.unshift(option(chosen, `${names[given]} → ${names[suggested]} (none left)`));
  }
  controls.pair.replaceChildren(option("", "any"), ...listed);
  controls.pair.value = chosen;
};
export const showFilters = () => {
  const { view } = session;
  for (const name of ["among", "given", "suggested", "state", "order"]) controls[name].value = view[name];
  controls.low.value = Math.round(100 * view.low);
  controls.high.value = Math.round(100 * view.high);
};

export const ALL = { among: "suspects", given: "", suggested: "", low: 0, high: 1, state: "open" }; // undecided suspects

// The settings of the controls that differ from the current view.
export const changes = (changed) => {
  if (changed === controls.pair) {
    const [given = "", suggested = ""] = controls.pair.value ? controls.pair.value.split(" ") : [];
    return { given, suggested };
  }
  const settings = {
    among: controls.among.value, given: controls.given.value, suggested: controls.suggested.value,
    low: share(controls.low.value, 0), high: share(controls.high.value, 1),
    state: controls.state.value, order: controls.order.value,
  };
  const isChanged = ([name, value]) => String(session.view[name]) !== String(value);
  return Object.fromEntries(Object.entries(settings).filter(isChanged));
};
const share = (text, otherwise) => {
  const number = Number(text) / 100;
  return text !== "" && number >= 0 && number <= 1 ? number : otherwise;
};
