// The picture of an example in full size, to zoom and to move.

import { gestures } from "../map.js";
import { $ } from "./elements.js";
import { picture } from "./example.js";
import { session } from "./session.js";

const CLOSEST = 40; // pixels of the screen for one of the picture, at most
const STEP = 1.5, SLIDE = 80;

const stage = $("photo-stage");
let image = null, scale = 1, left = 0, top = 0;

const size = () => [image.naturalWidth * scale, image.naturalHeight * scale];
const place = () => {
  if (!image?.naturalWidth) return;
  const [wide, tall] = size(), { clientWidth, clientHeight } = stage;
  left = wide <= clientWidth ? (clientWidth - wide) / 2 : Math.max(clientWidth - wide, Math.min(0, left));
  top = tall <= clientHeight ? (clientHeight - tall) / 2 : Math.max(clientHeight - tall, Math.min(0, top));
  Object.assign(image.style, { width: `${wide}px`, height: `${tall}px`, transform: `translate(${left}px, ${top}px)` });
};
const whole = () => Math.min(stage.clientWidth / image.naturalWidth, stage.clientHeight / image.naturalHeight, CLOSEST);
const fit = () => {
  if (!image?.naturalWidth) return;
  scale = whole();
  place();
};
const zoom = (factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) => {
  if (!image?.naturalWidth) return;
  const next = Math.max(whole(), Math.min(CLOSEST, scale * factor));
  left = x - ((x - left) * next) / scale;
  top = y - ((y - top) * next) / scale;
  scale = next;
  place();
};
const move = (dx, dy) => {
  left += dx;
  top += dy;
  place();
};

export const enlarge = () => {
  if (!session.item || $("one").hidden || session.start.kind !== "image") return;
  image = picture(session.item, "full");
  image.draggable = false;
  image.addEventListener("load", fit);
  stage.ariaLabel = `Example ${session.item.id}. Arrows move, plus and minus zoom, 0 shows the whole picture.`;
  stage.replaceChildren(image);
  $("photo").showModal();
};
const close = () => $("photo").close();

const keys = {
  ArrowLeft: () => move(SLIDE, 0), ArrowRight: () => move(-SLIDE, 0), ArrowUp: () => move(0, SLIDE), ArrowDown: () => move(0, -SLIDE),
  "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: fit, f: close,
};
$("photo").addEventListener("keydown", (event) => {
  const act = keys[event.key.toLowerCase()] ?? keys[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
$("exhibit").addEventListener("enlarge", enlarge);
for (const [id, act] of Object.entries({ "photo-in": () => zoom(STEP), "photo-out": () => zoom(1 / STEP), "photo-fit": fit, "photo-close": close })) {
  $(id).addEventListener("click", act);
}
gestures(stage, { zoom, move });
stage.addEventListener("dblclick", (event) => {
  const box = stage.getBoundingClientRect();
  if (scale > whole() * 1.01) fit();
  else zoom(4, event.clientX - box.left, event.clientY - box.top);
});
new ResizeObserver(() => place()).observe(stage);
