// A map of the examples, to zoom, to move and to step through; `point_map.py` packs its points.
// The report and the review use it. Names and ids are untrusted: they become text, never markup.

const UNKNOWN = 255; // in place of a quality in percent
const MANY = 4000; // points in view, above which they are squares
const CLICK = 5; // pixels that a finger or a mouse moves in a click
const REACH = { mouse: 10, pen: 14, touch: 22 }; // pixels from a click to its point
const CLOSEST = 400; // times that the whole map is magnified at most
const STEP = 1.5; // of a button or a key that zooms

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};
const isolated = (text) => element("bdi", { textContent: text });

// Wheel, mouse and fingers as `zoom(factor, x, y)`, `move(dx, dy)`, `tap(x, y, event)` and `over(x, y)`.
// A page can still be scrolled over an element that does not have the focus.
export const gestures = (target, { zoom, move, tap = () => {}, over = () => {} }) => {
  const pointers = new Map();
  let travelled = 0;
  const local = (event) => {
    const box = target.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...pointers.values()];
    return { far: Math.hypot(ax - bx, ay - by) || 1, x: (ax + bx) / 2, y: (ay + by) / 2 };
  };
  target.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== target) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    zoom(2 ** (-Math.max(-200, Math.min(200, pixels)) / (event.ctrlKey ? 80 : 240)), ...local(event));
  }, { passive: false });
  target.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    if (!pointers.size) travelled = 0;
    pointers.set(event.pointerId, local(event));
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("pointermove", (event) => {
    const [x, y] = local(event), last = pointers.get(event.pointerId);
    if (!last) { over(x, y); return; }
    const before = pointers.size === 2 && spread();
    travelled += Math.hypot(x - last[0], y - last[1]);
    pointers.set(event.pointerId, [x, y]);
    if (before) {
      const after = spread();
      zoom(after.far / before.far, before.x, before.y);
      move(after.x - before.x, after.y - before.y);
    } else if (pointers.size === 1 && travelled > CLICK) move(x - last[0], y - last[1]);
  });
  const end = (event) => {
    const was = pointers.delete(event.pointerId);
    if (was && event.type === "pointerup" && !pointers.size && travelled <= CLICK) tap(...local(event), event);
  };
  for (const name of ["pointerup", "pointercancel"]) target.addEventListener(name, end);
  target.addEventListener("pointerleave", () => over(-1e6, -1e6));
};

const unpacked = (data) => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const xy = new Uint16Array(bytes(data.xy).buffer), n = xy.length / 2;
  const given = bytes(data.given), Wide = given.length === 2 * n ? Uint16Array : Uint32Array;
  return {
    n, xy, given: new Wide(given.buffer), suggested: new Wide(bytes(data.suggested).buffer),
    quality: bytes(data.quality), index: new Uint32Array(bytes(data.index).buffer),
  };
};

// Functions of size, colour and opacity that return how a point is drawn: a few as discs, many as squares, which is faster.
const disc = (context) => (size, colour, opacity) => {
  context.fillStyle = colour;
  context.globalAlpha = opacity;
  return (x, y) => {
    context.beginPath();
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.fill();
  };
};
const square = (image, pixels) => (size, colour, opacity) => {
  const { width, height } = image, cells = new Uint32Array(image.data.buffer);
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  const value = ((Math.round(255 * opacity) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const side = Math.max(1, Math.round(2 * size * pixels));
  return (x, y) => {
    const first = Math.round((x - size) * pixels), start = Math.round((y - size) * pixels);
    const right = Math.max(0, Math.min(width, first + side)), bottom = Math.min(height, start + side);
    for (let row = Math.max(0, start); row < bottom; row += 1) {
      cells.fill(value, row * width + Math.max(0, first), row * width + right);
    }
  };
};

// Draw a map into an element. `open(index)` opens an example, and `canOpen(index)` says whether it can;
// `picture(index)` returns an element with its picture, or null.
export const pointMap = (root, data, { open, canOpen = () => true, picture = () => null, hint = "" }) => {
  const { n, xy, given, suggested, quality, index } = unpacked(data);
  const S = suggested.length; // suspects; they come first, the worst before the others
  const other = data.coloured.length; // the colour of classes without one of their own
  const colourOf = new Map(data.coloured.map((label, k) => [label, k]));
  const nameOf = (label) => (label < 0 ? "no label" : data.names[label] ?? `class ${label}`);
  const rowOf = new Map();
  index.forEach((number, i) => rowOf.set(number, i));
  const decided = new Map(); // classes that people chose, by point; −2 is "cannot tell"
  let right = 1, top = 1;
  for (let i = 0; i < n; i += 1) { right = Math.max(right, xy[2 * i]); top = Math.max(top, xy[2 * i + 1]); }

  // The elements.
  const button = (text, label, act, properties = {}) => {
    const made = element("button", { type: "button", textContent: text, ...properties });
    if (label) { made.ariaLabel = label; made.title = label; }
    made.addEventListener("click", act);
    return made;
  };
  const used = [...new Set([...given].map((label) => label - 1).concat([...suggested]))].filter((label) => label >= 0 && label in data.names);
  const chosen = element("select", {}, element("option", { value: "", textContent: "every class" }),
    ...used.sort((a, b) => a - b).map((label) => element("option", { value: label, textContent: nameOf(label) })));
  const alone = element("input", { type: "checkbox" });
  const canvas = element("canvas", { tabIndex: 0, ariaLabel: "Map of the examples" });
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "map");
  canvas.setAttribute("aria-describedby", "map-help");
  const tip = element("div", { className: "map-tip", hidden: true });
  const stage = element("div", { className: "map-stage" }, canvas, tip, element("div", { className: "map-zoom" },
    button("+", "Zoom in", () => zoomIn(STEP)), button("−", "Zoom out", () => zoomIn(1 / STEP)), button("Whole map", "", () => whole())));
  const legend = element("ul", { className: "map-legend" });
  const said = element("p", { className: "hidden" });
  said.setAttribute("role", "status");
  const count = element("span", { className: "map-count" });
  root.replaceChildren(
    element("div", { className: "map-bar" },
      element("label", {}, "Class ", chosen), element("label", { className: "map-check" }, alone, " Suspects only"),
      element("span", { className: "map-steps", hidden: !S }, button("Previous suspect", "", () => step(-1)), button("Next suspect", "", () => step(1)), count)),
    stage, legend,
    element("p", { className: "aside", id: "map-help", textContent: `Click the map, then scroll to zoom; drag to move. Keys: arrows move, + and − zoom, 0 shows the whole map, N and P step through the suspects, Enter opens one.${hint}` }), said);
  const swatch = (name, text) => element("li", {}, element("span", { className: `map-dot ${name}` }), isolated(text));
  const colours = [...data.coloured.keys()].map((k) => `map-${k + 1}`).concat("map-rest");
  const swatches = colours.slice(0, other).map((name, k) => swatch(name, nameOf(data.coloured[k])));
  swatches.push(swatch("map-rest", "other classes"));
  swatches[other].hidden = used.every((label) => colourOf.has(label)) && !given.includes(0);
  legend.append(...swatches, ...(S ? [swatch("map-ring", "suspect")] : []));

  // What is in view: x and y of a point are multiplied by the scale, and moved.
  let wide = 0, tall = 0, base = 1, scale = 1, left = 0, low = 0;
  const across = (i) => left + xy[2 * i] * scale, down = (i) => low - xy[2 * i + 1] * scale;
  const whole = () => {
    const margin = Math.min(28, wide / 16);
    base = scale = Math.min((wide - 2 * margin) / right, (tall - 2 * margin) / top);
    left = (wide - right * scale) / 2;
    low = (tall + top * scale) / 2;
    paint();
  };
  const move = (dx, dy) => {
    const margin = 40;
    left = Math.max(margin - right * scale, Math.min(wide - margin, left + dx));
    low = Math.max(margin, Math.min(tall - margin + top * scale, low + dy));
    paint();
  };
  const zoom = (factor, x, y) => {
    const next = Math.max(base / 2, Math.min(base * CLOSEST, scale * factor));
    left = x - ((x - left) * next) / scale;
    low = y + ((low - y) * next) / scale;
    scale = next;
    move(0, 0);
  };
  const zoomIn = (factor) => {
    const [x, y] = at < 0 ? [wide / 2, tall / 2] : [across(at), down(at)];
    zoom(factor, x, y);
  };
  const measure = () => {
    const box = stage.getBoundingClientRect(), pixels = Math.min(2, devicePixelRatio || 1);
    if (!box.width || (box.width === wide && box.height === tall)) return;
    const isFirst = !wide;
    const [dx, dy] = [(box.width - wide) / 2, (box.height - tall) / 2];
    [wide, tall] = [box.width, box.height];
    canvas.width = Math.round(wide * pixels);
    canvas.height = Math.round(tall * pixels);
    canvas.getContext("2d").setTransform(pixels, 0, 0, pixels, 0, 0);
    if (isFirst || scale === base) whole();
    else move(dx, dy);
  };

  // Points are faded unless they are of the chosen class, and the others left out of suspects alone.
  const label = (i) => decided.get(i) ?? given[i] - 1;
  const isChosen = (i) => chosen.value === "" || given[i] - 1 === Number(chosen.value)
    || (i < S && suggested[i] === Number(chosen.value));
  const isThere = (i) => (i < S || !alone.checked) && isChosen(i);
  let groups = []; // points by colour, then those that are faded
  const sort = () => {
    groups = Array.from({ length: other + 2 }, () => []);
    for (let i = n - 1; i >= 0; i -= 1) {
      if (i >= S && alone.checked) continue;
      groups[isChosen(i) ? colourOf.get(label(i)) ?? other : other + 1].push(i);
    }
    const list = inOrder(), place = list.indexOf(at), many = list.length.toLocaleString("en");
    count.textContent = place >= 0 ? `${(place + 1).toLocaleString("en")} of ${many}` : `${many} suspects`;
    paint();
  };
  const inOrder = () => Array.from({ length: S }, (_, i) => i).filter(isThere);

  // Drawing.
  let at = -1, over = -1, painting = false;
  const paint = () => {
    if (painting) return;
    painting = true;
    requestAnimationFrame(() => { painting = false; draw(); });
  };
  const radius = (inView) => Math.max(1.2, Math.min(7, 75 / Math.sqrt(inView + 80))) * (wide < 500 ? 0.8 : 1);
  const draw = () => {
    if (!wide) return;
    const context = canvas.getContext("2d"), style = getComputedStyle(stage);
    const paints = colours.map((name, k) => getComputedStyle(swatches[k].firstChild).backgroundColor);
    const [ink, paper] = [style.color, style.backgroundColor];
    const isInView = (x, y) => x > -9 && y > -9 && x < wide + 9 && y < tall + 9;
    let inView = 0;
    for (let i = 0; i < n; i += 1) inView += isInView(across(i), down(i));
    const r = radius(inView), isRound = inView <= MANY;
    context.clearRect(0, 0, wide, tall);
    const image = isRound ? null : context.createImageData(canvas.width, canvas.height);
    const dot = isRound ? disc(context) : square(image, canvas.width / wide);
    const dots = (list, size, colour, opacity, keeps) => {
      const put = dot(size, colour, opacity);
      for (const i of list) {
        if (!keeps(i)) continue;
        const x = across(i), y = down(i);
        if (isInView(x, y)) put(x, y);
      }
    };
    dots(groups[other + 1], r, paints[other], 0.25, () => true);
    const opacity = S && !alone.checked ? 0.6 : 0.85;
    const order = [other, ...data.coloured.keys()], ring = isRound ? Math.max(1, r / 3) : 0.8;
    for (const k of order) dots(groups[k], r, paints[k], opacity, (i) => i >= S);
    for (const k of order) {
      dots(groups[k], r + 2 * ring, ink, 1, (i) => i < S && !decided.has(i));
      if (isRound) dots(groups[k], r + ring, paper, 1, (i) => i < S);
      dots(groups[k], isRound ? r : r + ring / 2, paints[k], 1, (i) => i < S);
    }
    context.globalAlpha = 1;
    if (image) context.putImageData(image, 0, 0);
    for (const [i, far] of [[over, 5], [at, 7]]) {
      if (i < 0) continue;
      context.lineWidth = 2.5;
      context.strokeStyle = i === at ? style.getPropertyValue("outline-color") : ink;
      context.beginPath();
      context.arc(across(i), down(i), r + far, 0, 2 * Math.PI);
      context.stroke();
    }
    placeTip();
  };

  const chance = (percent) => percent === 0 ? "<1%" : percent === 100 ? ">99%" : `${percent}%`; // never certain
  // What is known about a point, beside it.
  const words = (i) => {
    const parts = [i < S ? `Given ${nameOf(given[i] - 1)}, suggested ${nameOf(suggested[i])}` : nameOf(given[i] - 1)];
    if (quality[i] !== UNKNOWN) parts.push(`quality ${chance(quality[i])}`);
    if (decided.has(i)) parts.push(decided.get(i) === -2 ? "cannot tell" : `decided: ${nameOf(decided.get(i))}`);
    return parts;
  };
  const idOf = (i) => data.ids[i] ?? `example ${(index[i] + 1).toLocaleString("en")}`;
  const showTip = (i) => {
    tip.hidden = i < 0;
    tip.dataset.point = i;
    if (i < 0) return;
    const [first, ...rest] = words(i), shown = picture(index[i]);
    const labels = i < S ? [isolated(nameOf(given[i] - 1)), " → ", element("b", {}, isolated(nameOf(suggested[i])))] : [isolated(first)];
    const text = element("div", {}, element("p", {}, ...labels), element("p", { textContent: rest.join(" · ") }), element("p", { className: "id" }, isolated(idOf(i))));
    if (i === at && canOpen(index[i])) text.append(button("Open", "", () => open(index[i])));
    tip.replaceChildren(...(shown ? [shown] : []), text);
    tip.classList.toggle("pinned", i === at);
  };
  const placeTip = () => {
    const i = Number(tip.dataset.point ?? -1);
    if (tip.hidden || i < 0) return;
    const x = across(i), y = down(i), [w, h] = [tip.offsetWidth, tip.offsetHeight];
    const isLeft = x + 18 + w > wide - 4 && x - 18 - w >= 4;
    tip.style.left = `${Math.max(4, Math.min(wide - w - 4, isLeft ? x - 18 - w : x + 18))}px`;
    const isNarrow = w + 44 > wide - w; // there is no room beside the point
    const beside = isNarrow ? (y + 18 + h < tall ? y + 18 : y - 18 - h) : y - h / 2;
    tip.style.top = `${Math.max(4, Math.min(tall - h - 4, beside))}px`;
  };

  // Choosing points.
  const nearest = (x, y, reach) => {
    let best = -1, least = reach ** 2;
    for (let i = n - 1; i >= 0; i -= 1) {
      const square = (across(i) - x) ** 2 + (down(i) - y) ** 2;
      if (square <= least && isThere(i)) { least = square; best = i; } // of equals the worst label
    }
    return best;
  };
  const select = (i) => {
    at = i;
    over = -1;
    showTip(i);
    if (i >= 0) {
      const x = across(i), y = down(i), margin = 12;
      if (x < margin || y < margin || x > wide - margin || y > tall - margin) move(wide / 2 - x, tall / 2 - y);
      said.textContent = `${words(i).join(", ")}, ${idOf(i)}.`;
    }
    sort();
  };
  const step = (by) => {
    const list = inOrder();
    if (!list.length) { said.textContent = "No suspect is on the map."; return; }
    const next = at < 0 ? (by > 0 ? list[0] : list[list.length - 1])
      : by > 0 ? list.find((i) => i > at) : list.findLast((i) => i < at);
    if (next === undefined) said.textContent = by > 0 ? "This is the last suspect." : "This is the first suspect.";
    else select(next);
  };
  const enter = () => { if (at >= 0 && canOpen(index[at])) open(index[at]); };
  gestures(canvas, {
    zoom, move,
    over: (x, y) => {
      const i = nearest(x, y, REACH.mouse);
      canvas.classList.toggle("over", i >= 0);
      if (i === over) return;
      over = i;
      showTip(i < 0 ? at : i);
      paint();
    },
    tap: (x, y, event) => {
      const i = nearest(x, y, REACH[event.pointerType] ?? REACH.mouse);
      canvas.focus({ preventScroll: true });
      const isAgain = i === at;
      select(i);
      if (event.pointerType !== "touch" || isAgain) enter();
    },
  });
  const keys = {
    ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0), ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
    "+": () => zoomIn(STEP), "=": () => zoomIn(STEP), "-": () => zoomIn(1 / STEP), "−": () => zoomIn(1 / STEP), 0: () => whole(),
    n: () => step(1), "]": () => step(1), p: () => step(-1), "[": () => step(-1),
    Enter: enter, Escape: () => select(-1),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || (event.key === "Escape" && at < 0)) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  for (const control of [chosen, alone]) control.addEventListener("change", sort);
  new ResizeObserver(measure).observe(stage);
  new MutationObserver(paint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  measure();
  sort();
  return {
    focus: () => canvas.focus({ preventScroll: true }),
    select: (number) => select(rowOf.get(number) ?? -1),
    // The classes that people chose, −1 for none, as pairs of example and class.
    decide: (pairs) => {
      for (const [number, label] of pairs) {
        const i = rowOf.get(number);
        if (i === undefined) continue;
        if (label === -1) decided.delete(i);
        else decided.set(i, label);
      }
      showTip(at);
      sort();
    },
  };
};
