// The dialog for choosing a class by typing part of its name.

import { $, bdi, make, whole } from "./elements.js";
import { settle } from "./deciding.js";
import { session } from "./session.js";

const MOST_OFFERED = 50;
let offered = [], active = 0, items = [];

export const pick = (chosen) => {
  if (!chosen.length || session.busy) return;
  items = chosen;
  $("picker-text").value = "";
  offer();
  $("picker").showModal();
};
const offer = () => {
  const { names } = session;
  const sought = $("picker-text").value.trim().toLowerCase();
  const likely = items.length === 1 ? items[0].likely || [] : [];
  const ranked = [...new Set([...likely, ...names.keys()])];
  const match = (k) => names[k].toLowerCase().indexOf(sought);
  const rank = (k) => (names[k].toLowerCase() === sought ? 0 : match(k) === 0 ? 1 : 2);
  const found = sought ? ranked.filter((k) => match(k) >= 0).sort((a, b) => rank(a) - rank(b)) : ranked;
  offered = found.slice(0, MOST_OFFERED);
  active = 0;
  $("picker-list").replaceChildren(...offered.map((k, n) => {
    const one = make("li", { id: `class-${n}` }, bdi(names[k]));
    one.setAttribute("role", "option");
    one.addEventListener("click", () => choose(n));
    return one;
  }));
  $("picker-count").textContent = found.length > offered.length ? `Showing the first ${offered.length} of ${whole(found.length)} classes.` : `${whole(found.length)} classes match.`;
  highlight();
};
const highlight = () => {
  [...$("picker-list").children].forEach((one, n) => one.setAttribute("aria-selected", String(n === active)));
  const one = $("picker-list").children[active];
  if (one) {
    $("picker-text").setAttribute("aria-activedescendant", one.id);
    one.scrollIntoView({ block: "nearest" });
  } else $("picker-text").removeAttribute("aria-activedescendant");
};
const choose = (n) => {
  const label = offered[n];
  if (label === undefined) return;
  $("picker").close();
  settle(items, () => label);
};
$("picker-text").addEventListener("input", offer);
$("picker-text").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    active = Math.max(0, Math.min(offered.length - 1, active + step));
    highlight();
  } else if (event.key === "Enter") {
    event.preventDefault();
    choose(active);
  }
});
