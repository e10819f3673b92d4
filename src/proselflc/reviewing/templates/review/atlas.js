// The map of the examples.

import { pointMap } from "../map.js";
import { $ } from "./elements.js";
import { picture } from "./example.js";
import { ask } from "./server.js";
import { session } from "./session.js";

const HINT = " A click opens one too, and M leaves the map.";

let map = null; // once it has been loaded

export const showMap = async () => {
  if (!map) {
    const data = await ask("/api/map");
    if (map) return;
    $("map-caption").textContent = data.caption;
    map = pointMap($("map"), data, {
      open: (index) => $("map").dispatchEvent(new CustomEvent("look", { detail: index })),
      picture: (index) => (session.start.kind === "image" ? picture({ index, id: "" }, "small") : null),
      hint: HINT,
    });
    map.decide(data.decided);
  }
  if (session.item) map.select(session.item.index);
};
export const focusMap = () => map.focus();

// Decisions that were made since; without a list of them, the map is loaded anew.
export const noteDecisions = (changed) => {
  if (!changed) map = null;
  else if (map) map.decide(changed.map(({ index, label }) => [index, label]));
};
