(() => {
  "use strict";
  const NOBODY = -1, UNSURE = -2, PAGE = 100, FIFTY = 50, TALLEST = 2e7;
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const whole = (number) => Math.round(number).toLocaleString("en");

  // A stranger's names and texts only ever become text, never markup.
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const bdi = (text) => make("bdi", { textContent: text });
  const drawn = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const chance = (p) => {
    if (p === null || p === undefined) return "unknown";
    if (p < 0.005) return "<1%";
    return p > 0.995 ? ">99%" : `${Math.round(100 * p)}%`;
  };
  const say = (text) => { $("said").textContent = text; };

  // What is remembered in this browser is how the page looks, and in this tab where it was.
  const remembered = (store, name, otherwise) => {
    try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
  };
  const remember = (store, name, value) => {
    try { store.setItem(name, JSON.stringify(value)); } catch { /* private windows may refuse */ }
  };

  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const offerTheme = () => { $("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };
  const theme = remembered(localStorage, "proselflc-theme", "");
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  $("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(localStorage, "proselflc-theme", root.dataset.theme);
    offerTheme();
  });
  system.addEventListener("change", offerTheme);
  offerTheme();

  // The server.
  class Refused extends Error {}
  const once = async (path, body) => {
    const sent = body === undefined ? {} : {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    };
    let answer;
    try {
      answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...sent });
    } catch {
      throw new Refused("The server does not answer: is proselflc review still running?");
    }
    if (answer.status === 401) {
      throw new Refused("The server was started anew: open the address that it has printed in this browser.");
    }
    let value;
    try { value = await answer.json(); } catch { value = {}; }
    if (!answer.ok) throw new Refused(value.error || `The server refused (${answer.status}).`);
    return value;
  };
  // Until it is answered nothing goes on; asking twice does nothing twice.
  const ask = async (path, body) => {
    for (;;) {
      try {
        const value = await once(path, body);
        $("lost").hidden = true;
        return value;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        $("lost-why").textContent = error.message;
        $("lost").hidden = false;
        await new Promise((go) => {
          const later = setTimeout(go, 2000);
          $("retry").addEventListener("click", () => { clearTimeout(later); go(); }, { once: true });
        });
      }
    }
  };
  const key = () => [...crypto.getRandomValues(new Uint8Array(12))].map((n) => n.toString(16).padStart(2, "0")).join("");

  // What is known.
  let names = [], start = null, line = 0, busy = false, history = [];
  let view = { given: "", suggested: "", low: 0, high: 1, state: "open", order: "quality", line: 0 };
  let mode = "one", total = 0, place = 0, item = null;
  const query = () => new URLSearchParams(view).toString();
  const saveWhere = () => remember(sessionStorage, "proselflc-where", { run: start.run, view, mode, place });

  // Items of the view, by place, a page at a time.
  let pages = new Map(), known = new Map(), era = 0;
  const forget = () => { pages = new Map(); known = new Map(); era += 1; };
  const page = (number) => {
    if (!pages.has(number)) {
      const asked = ask(`/api/items?${query()}&offset=${number * PAGE}&limit=${PAGE}`).then((answer) => {
        total = answer.total;
        for (const one of answer.items) known.set(one.index, one);
        return answer.items;
      });
      pages.set(number, asked);
      if (pages.size > 80) {
        const oldest = pages.keys().next().value;
        pages.get(oldest).then((items) => items.forEach((one) => known.delete(one.index)));
        pages.delete(oldest);
      }
    }
    return pages.get(number);
  };
  const itemAt = async (where) => (await page(Math.floor(where / PAGE)))[where % PAGE];

  const takeOver = (state) => {
    line = state.line;
    for (const one of [...(state.changed || []), ...(state.done || []), ...(state.conflicts || [])]) {
      for (const held of [known.get(one.index), selected.get(one.index), item]) {
        if (held && held.index === one.index) Object.assign(held, { by: undefined, at: undefined }, one);
      }
    }
    const { decided, unsure, confirmed, intervalOfConfirmed: [low, high] } = state.precision;
    const settled = state.suspects - state.left;
    $("bar").max = Math.max(1, state.suspects);
    $("bar").value = settled;
    const words = [`${whole(settled)} of ${whole(state.suspects)} decided`];
    if (decided) words.push(`${whole(confirmed)} of ${whole(decided)} suggestions right (95%: ${Math.floor(100 * low)} to ${Math.ceil(100 * high)}%)`);
    if (unsure) words.push(`${whole(unsure)} unsure`);
    words.push(`about ${whole(state.remaining)} labels still wrong, ${whole(state.remainingSuspects)} of them undecided suspects`);
    $("progress").replaceChildren(...words.map((text) => make("span", { textContent: text })));
    $("notes").hidden = !state.notes.length && !start.gone;
    $("notes").replaceChildren(...state.notes.map((text) => make("p", { textContent: text })));
    if (start.gone) $("notes").prepend(make("p", {}, make("strong", { textContent: "The examples themselves are not shown. " }), start.gone));
    offerPairs(state.pairs);
    for (const id of ["undo", "many-undo", "done-undo"]) $(id).disabled = !history.length;
  };

  // Filters.
  const controls = $("controls").elements;
  const option = (value, text) => make("option", { value, textContent: text });
  const offerPairs = (pairs) => {
    const chosen = view.given !== "" && view.suggested !== "" ? `${view.given} ${view.suggested}` : "";
    const listed = pairs.map(([given, suggested, , left]) => option(`${given} ${suggested}`, `${names[given]} → ${names[suggested]} (${whole(left)} left)`));
    if (chosen && !pairs.some(([g, s]) => `${g} ${s}` === chosen)) {
      listed.unshift(option(chosen, `${names[view.given]} → ${names[view.suggested]} (none left)`));
    }
    controls.pair.replaceChildren(option("", "any"), ...listed);
    controls.pair.value = chosen;
  };
  const showFilters = () => {
    for (const name of ["given", "suggested", "state", "order"]) controls[name].value = view[name];
    controls.low.value = Math.round(100 * view.low);
    controls.high.value = Math.round(100 * view.high);
  };
  const share = (text, otherwise) => {
    const number = Number(text) / 100;
    return text !== "" && number >= 0 && number <= 1 ? number : otherwise;
  };
  const filter = async (changes) => {
    view = { ...view, ...changes, line };
    place = 0;
    selected.clear();
    forget();
    const mine = era; // a later filter is the one that counts
    showFilters();
    const state = await ask(`/api/state?since=${line}`);
    if (mine !== era) return;
    view.line = state.line;
    takeOver(state);
    await page(0);
    if (mine !== era) return;
    say(`${whole(total)} suspects match.`);
    await arrive();
  };
  $("controls").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    (mode === "grid" ? $("grid") : item ? $("question") : $("done-title")).focus();
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("controls").addEventListener("change", (event) => {
    if (event.target === controls.pair) {
      const [given = "", suggested = ""] = controls.pair.value ? controls.pair.value.split(" ") : [];
      filter({ given, suggested });
      return;
    }
    const wanted_ = {
      given: controls.given.value, suggested: controls.suggested.value,
      low: share(controls.low.value, 0), high: share(controls.high.value, 1),
      state: controls.state.value, order: controls.order.value,
    };
    if (Object.entries(wanted_).some(([name, value]) => String(view[name]) !== String(value))) filter(wanted_);
  });

  // One by one.
  const details = new Map();
  const detail = (index) => {
    if (!details.has(index)) {
      details.set(index, { about: once(`/api/example/${index}`), near: once(`/api/neighbours/${index}`) });
      for (const asked of Object.values(details.get(index))) asked.catch(() => details.delete(index));
      if (details.size > 12) details.delete(details.keys().next().value);
    }
    return details.get(index);
  };
  const decision = (one) => {
    if (one.label === NOBODY) return "";
    if (one.label === UNSURE) return "cannot tell";
    if (one.label === one.given) return `kept: ${names[one.given]}`;
    return `${one.label === one.suggested ? "accepted" : "changed"}: ${names[one.label]}`;
  };
  const picture = (one, size) => {
    const image = make("img", { alt: size === "large" ? `Example ${one.id}` : "", decoding: "async" });
    image.addEventListener("load", () => image.classList.toggle("pixels", size === "small" && Math.max(image.naturalWidth, image.naturalHeight) <= 48));
    image.addEventListener("error", () => image.replaceWith(make("span", { className: "blank", textContent: "no picture" })));
    image.src = `/picture/${size}/${one.index}`;
    return image;
  };
  const number = (value) => (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e7 ? Number(value.toPrecision(4)).toLocaleString("en") : value ? value.toPrecision(3) : "0");
  const columns = (one, list) => {
    const head = ["column", "here", `usual for ${names[one.given]}`, `usual for ${names[one.suggested]}`];
    const usual = ([mean, spread]) => `${number(mean)} ± ${number(spread)}`;
    return make("table", {},
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, bdi(text))))),
      make("tbody", {}, ...list.map((row) => make("tr", {}, make("th", { scope: "row" }, bdi(row.name)),
        make("td", {}, make("b", { textContent: number(row.value) })), make("td", { textContent: usual(row.given) }), make("td", { textContent: usual(row.suggested) })))));
  };
  const path = (p) => {
    let text = "", isOn = false;
    p.forEach((value, k) => {
      if (value === null) { isOn = false; return; }
      const x = (300 * (p.length > 1 ? k / (p.length - 1) : 0)).toFixed(1), y = (80 * (1 - value)).toFixed(1);
      text += `${isOn ? "L" : "M"}${x} ${y}${isOn || p[k + 1] != null ? "" : "h.1"}`;
      isOn = true;
    });
    return text;
  };
  const ends = (p) => {
    const seen = p.filter((value) => value !== null);
    return seen.length ? `${chance(seen[0])} at first, ${chance(seen[seen.length - 1])} at last` : "not seen";
  };
  const curve = ({ epochs, given, other }) => {
    const said = `Over ${epochs} epochs: p of the given label ${ends(given)}; of another class ${ends(other)}`;
    return drawn("svg", { class: "curve", viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": said },
      drawn("path", { class: "frame", d: "M0 0h300M0 80h300" }),
      drawn("path", { class: "other", d: path(other) }), drawn("path", { class: "given", d: path(given) }));
  };
  const glimpse = (one) => {
    if (start.kind === "image") return picture(one, "small");
    if (start.kind === "text") return make("span", { className: "text", dir: "auto", textContent: one.text || "" });
    if (start.kind === "table") {
      return make("span", { className: "text" }, ...(one.columns || []).flatMap((row) => [bdi(row.name), ` ${number(row.value)} `, make("br")]));
    }
    return make("span", { className: "blank", textContent: "not shown" });
  };
  const bar = (label, name, p, className) => {
    const fill = make("span", { className });
    fill.style.width = `${100 * (p || 0)}%`;
    return [make("dt", {}, `${label} `, bdi(name)), make("dd", {}, make("b", { textContent: chance(p) }), make("span", { className: "track", ariaHidden: "true" }, fill))];
  };
  const question = (one) => `Given ${names[one.given]}, suggested ${names[one.suggested]}`;

  const showOne = (one) => {
    item = one;
    $("place").textContent = total ? `${whole(Math.min(place + 1, total))} of ${whole(total)}` : "";
    $("question").replaceChildren(
      make("span", { className: "label", textContent: "given" }), bdi(names[one.given]),
      make("span", { className: "arrow", ariaHidden: "true", textContent: "→" }),
      make("span", { className: "label", textContent: "suggested" }), make("b", {}, bdi(names[one.suggested])));
    $("standing").hidden = one.label === NOBODY;
    $("standing").textContent = one.label === NOBODY ? "" : `Decided: ${decision(one)}${one.by ? `, by ${one.by}` : ""}${one.at ? `, ${new Date(one.at).toLocaleString("en")}` : ""}`;
    $("chances").replaceChildren(...bar("Given", names[one.given], one.quality, "given"), ...bar("Suggested", names[one.suggested], one.sure, "other"));
    $("accept").firstChild.replaceChildren("Accept: it is ", bdi(names[one.suggested]));
    $("keep").firstChild.replaceChildren("Keep: it is ", bdi(names[one.given]));
    $("id").textContent = one.id;
    $("exhibit").replaceChildren(start.kind === "image" ? picture(one, "large")
      : make("p", { className: start.kind ? "text" : "blank", textContent: start.kind ? (one.text || "") : "The example itself cannot be shown." }));
    $("curve").replaceChildren();
    $("likely").lastChild.replaceChildren();
    $("near-given-name").replaceChildren("Surely ", bdi(names[one.given]));
    $("near-suggested-name").replaceChildren("Surely ", bdi(names[one.suggested]));
    for (const id of ["near-given", "near-suggested"]) $(id).replaceChildren();
    $("near-how").textContent = "";
    $("near").hidden = !start.kind;
    const { about, near } = detail(one.index);
    about.then((found) => { if (item === one) showDetail(one, found); }, () => {});
    near.then((found) => { if (item === one) showNear(found); }, () => {});
    // What comes next is fetched while this one is looked at.
    itemAt(place + 1).then((next) => {
      if (!next || item !== one) return;
      detail(next.index);
      if (start.kind === "image") new Image().src = `/picture/large/${next.index}`;
    }, () => {});
  };
  const showDetail = (one, found) => {
    if (start.kind === "text") {
      const text = make("p", { className: "text", dir: "auto", textContent: found.text });
      $("exhibit").replaceChildren(text, ...(found.cut ? [make("p", { className: "aside", textContent: `${whole(found.cut)} more characters are not shown.` })] : []));
    } else if (start.kind === "table") {
      const scroll = make("div", { className: "scroll", tabIndex: 0, ariaLabel: "Columns of the example" }, columns(one, found.columns));
      scroll.setAttribute("role", "region");
      $("exhibit").replaceChildren(scroll, ...(found.moreColumns ? [make("p", { className: "aside", textContent: `${whole(found.moreColumns)} more columns are not shown.` })] : []));
    }
    $("learning").hidden = !found.curve;
    if (found.curve) $("curve").replaceChildren(curve(found.curve));
    $("likely").hidden = found.chances.length < 2;
    $("likely").lastChild.replaceChildren(...found.chances.map(([k, p], n) => {
      const button = make("button", { type: "button" }, make("kbd", { textContent: n + 1 }), " ", bdi(names[k]), make("span", { textContent: chance(p) }));
      button.addEventListener("click", () => settle([one], k));
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

  const arrive = async (from = place) => {
    const before = era;
    if (mode === "grid") { show("all"); await layOut(); return; }
    let found = await ask(`/api/next?${query()}&from=${from}`);
    if (view.state === "decided" && from < found.total) found = { ...found, place: from };
    if (found.place === null && from > 0) found = await ask(`/api/next?${query()}&from=0`);
    if (before !== era) return;
    total = found.total;
    if (found.place === null) { finish(); return; }
    await goTo(found.place);
  };
  const goTo = async (where) => {
    const before = era;
    const one = await itemAt(where);
    if (before !== era || !one) return;
    place = where;
    saveWhere();
    show("one");
    showOne(one);
    say(`${question(one)}, ${chance(one.sure)} sure. ${whole(place + 1)} of ${whole(total)}.`);
  };
  const finish = () => {
    item = null;
    const isFiltered = view.given !== "" || view.suggested !== "" || view.low > 0 || view.high < 1;
    $("done-title").textContent = total ? "All of these are decided" : "No suspect matches";
    $("done-text").textContent = isFiltered ? "Choose another filter to go on." : "Train on what was decided, and see what it has changed:";
    $("done-next").hidden = isFiltered;
    $("done-next").textContent = `proselflc train --data … --labels ${start.run} --reviewed --out runs/reviewed\nproselflc report ${start.run} runs/reviewed`;
    $("place").textContent = "";
    show("done");
    say($("done-title").textContent);
    if (!document.activeElement || document.activeElement === document.body || !document.activeElement.checkVisibility()) $("done-title").focus();
  };
  const show = (which) => {
    for (const id of ["one", "all", "done"]) $(id).hidden = id !== which;
    $("mode-one").setAttribute("aria-pressed", String(mode === "one"));
    $("mode-grid").setAttribute("aria-pressed", String(mode === "grid"));
  };

  // Deciding.
  const called = (label) => (label === null || label === UNSURE ? "cannot tell" : names[label]);
  const wanted = (one, label) => (label === "suggested" ? one.suggested : label === "given" ? one.given : label);
  const send = async (decisions) => {
    const asked = { key: key(), since: line, decisions }; // the same key, however often it is sent
    return ask("/api/decide", asked);
  };
  const settle = async (items, label) => {
    if (busy || !items.length) return;
    busy = true;
    document.body.classList.add("busy");
    try {
      let list = items.map((one) => ({ index: one.index, label: wanted(one, label), base: one.line }));
      const written = [];
      for (;;) {
        const answer = await send(list);
        written.push(...answer.done.map(({ index, line: of }) => ({ index, line: of })));
        // Whoever said the same is no conflict.
        const said = new Map(list.map((one) => [one.index, one.label === null ? UNSURE : one.label]));
        const against = answer.conflicts.filter((one) => said.get(one.index) !== one.label);
        takeOver(answer);
        if (!against.length || !(await insists(against, said))) break;
        list = against.map((one) => ({ index: one.index, label: said.get(one.index) === UNSURE ? null : said.get(one.index), base: one.line }));
      }
      if (written.length) history.push(written);
      for (const id of ["undo", "many-undo", "done-undo"]) $(id).disabled = !history.length;
      const words = items.length === 1 ? `${called(list[0].label)}.` : `${whole(written.length)} decided.`;
      if (mode === "grid") {
        selected.clear();
        paint();
        say(words);
      } else {
        await (view.state === "decided" ? arrive(place + 1) : arrive(place));
        $("said").textContent = `${words} ${$("said").textContent}`;
      }
    } finally {
      busy = false;
      document.body.classList.remove("busy");
    }
  };
  const insists = (against, said) => new Promise((answered) => {
    const [first] = against;
    $("conflict-text").textContent = against.length === 1
      ? `“${called(first.label)}” was decided about this one by ${first.by || "somebody"}${first.at ? ` (${new Date(first.at).toLocaleString("en")})` : ""} after you had loaded it. You say “${called(said.get(first.index))}”.`
      : `${whole(against.length)} of these were decided otherwise after you had loaded them, the first as “${called(first.label)}” by ${first.by || "somebody"}. They were left as they are; the others are saved.`;
    const close = (mine) => () => { $("conflict").close(); answered(mine); };
    $("conflict-theirs").onclick = close(false);
    $("conflict-mine").onclick = close(true);
    $("conflict").oncancel = () => answered(false);
    $("conflict").showModal();
  });
  const undo = async () => {
    if (busy || !history.length) return;
    busy = true;
    try {
      const last = history[history.length - 1];
      const answer = await send(last.map((one) => ({ index: one.index, base: one.line, undo: true })));
      history.pop();
      takeOver(answer);
      const others = answer.conflicts.length ? ` ${whole(answer.conflicts.length)} had been decided anew by somebody else and stay.` : "";
      if (mode === "grid") {
        paint();
        say(`Undone.${others}`);
        return;
      }
      const one = known.get(last[0].index) || (await ask(`/api/item/${last[0].index}`));
      show("one");
      showOne(one);
      say(`Undone.${others} ${question(one)}.`);
    } finally {
      busy = false;
    }
  };

  // Picking a class.
  let offered = [], active = 0, pickedFor = [];
  const openPicker = (items) => {
    if (!items.length || busy) return;
    pickedFor = items;
    $("picker-text").value = "";
    offer();
    $("picker").showModal();
  };
  const offer = () => {
    const sought = $("picker-text").value.trim().toLowerCase();
    const first = pickedFor.length === 1 ? pickedFor[0].likely || [] : [];
    const ranked = [...new Set([...first, ...names.keys()])];
    const match = (k) => names[k].toLowerCase().indexOf(sought);
    const found = sought ? ranked.filter((k) => match(k) >= 0).sort((a, b) => (match(a) > 0) - (match(b) > 0)) : ranked;
    offered = found.slice(0, 50);
    active = 0;
    $("picker-list").replaceChildren(...offered.map((k, n) => {
      const one = make("li", { id: `class-${n}` }, bdi(names[k]));
      one.setAttribute("role", "option");
      one.addEventListener("click", () => choose(n));
      return one;
    }));
    $("picker-count").textContent = found.length > offered.length ? `The first ${offered.length} of ${whole(found.length)} are listed.` : `${whole(found.length)} found.`;
    highlight();
  };
  const highlight = () => {
    [...$("picker-list").children].forEach((one, n) => one.setAttribute("aria-selected", String(n === active)));
    const one = $("picker-list").children[active];
    if (one) { $("picker-text").setAttribute("aria-activedescendant", one.id); one.scrollIntoView({ block: "nearest" }); }
    else $("picker-text").removeAttribute("aria-activedescendant");
  };
  const choose = (n) => {
    if (offered[n] === undefined) return;
    $("picker").close();
    settle(pickedFor, offered[n]);
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

  // The grid: however many there are, only those that can be seen are there.
  const selected = new Map();
  const cells = new Map();
  let at = 0, anchor = 0, shape = { columns: 1, width: 1, height: 1, full: 0, tall: 0 };
  const measure = () => {
    const room = $("grid").clientWidth, isText = start.kind !== "image";
    const columns_ = Math.max(isText ? 1 : 2, Math.floor(room / (isText ? 300 : 168)));
    const height = isText ? 176 : 232;
    const full = Math.ceil(total / columns_) * height;
    shape = { columns: columns_, width: room / columns_, height, full, tall: Math.min(full, TALLEST) };
    $("sheet").style.height = `${shape.tall}px`;
  };
  const stretch = () => {
    const seen = $("grid").clientHeight;
    return shape.tall > seen ? (shape.full - seen) / (shape.tall - seen) : 1;
  };
  const layOut = async () => {
    await page(0);
    measure();
    at = Math.min(at, Math.max(0, total - 1));
    paint();
  };
  const paint = () => {
    if (mode !== "grid") return;
    const top = $("grid").scrollTop, begin = top * stretch();
    const first = Math.max(0, Math.floor(begin / shape.height) - 2) * shape.columns;
    const last = Math.min(total, (Math.ceil((begin + $("grid").clientHeight) / shape.height) + 2) * shape.columns);
    for (const [where, cell] of cells) {
      if (where < first || where >= last || cell.era !== era) { cell.element.remove(); cells.delete(where); }
    }
    for (let where = first; where < last; where += 1) {
      if (!cells.has(where)) {
        const element = make("div", { id: `cell-${where}`, className: "cell" });
        element.setAttribute("role", "option");
        element.addEventListener("click", (event) => {
          if (event.shiftKey) { at = where; selectTo(where); } else { at = anchor = where; toggle(where); }
          $("grid").focus();
        });
        element.addEventListener("dblclick", () => openFrom(where));
        $("sheet").append(element);
        cells.set(where, { element, era, index: null, told: "" });
      }
      const { style } = cells.get(where).element;
      style.left = `${(where % shape.columns) * shape.width}px`;
      style.top = `${top + Math.floor(where / shape.columns) * shape.height - begin}px`;
      style.width = `${shape.width}px`;
      style.height = `${shape.height}px`;
    }
    for (let number = Math.floor(first / PAGE); number * PAGE < last; number += 1) {
      const before = era;
      page(number).then((items) => { if (before === era) items.forEach((one, k) => fill(number * PAGE + k, one)); });
    }
    $("grid").toggleAttribute("aria-activedescendant", false);
    if (cells.has(at)) $("grid").setAttribute("aria-activedescendant", `cell-${at}`);
    for (const [where, { element }] of cells) element.classList.toggle("at", where === at);
    $("selected").textContent = `${whole(selected.size)} selected`;
    for (const id of ["many-accept", "many-keep", "many-pick", "many-unsure", "many-none"]) $(id).disabled = !selected.size;
    $("place").textContent = total ? `${whole(at + 1)} of ${whole(total)}` : "No suspect matches.";
  };
  const fill = (where, one) => {
    const cell = cells.get(where);
    if (!cell) return;
    const { element } = cell;
    const isSelected = selected.has(one.index);
    element.setAttribute("aria-selected", String(isSelected));
    element.setAttribute("aria-posinset", where + 1);
    element.setAttribute("aria-setsize", total);
    element.classList.toggle("decided", one.label !== NOBODY);
    const told = `${one.index} ${one.label}`;
    if (cell.told === told) return;
    cell.told = told;
    element.setAttribute("aria-label", `${question(one)}, ${chance(one.sure)} sure, ${one.id}. ${decision(one) || "undecided"}`);
    element.replaceChildren(make("span", { className: "look" }, glimpse(one)),
      make("span", { className: "labels" }, bdi(names[one.given]), " → ", make("b", {}, bdi(names[one.suggested]))),
      make("span", { className: "numbers", textContent: decision(one) || `${chance(one.sure)} sure` }));
  };
  const mark = (one, isOn) => { if (isOn) selected.set(one.index, one); else selected.delete(one.index); };
  const toggle = async (where) => {
    const one = await itemAt(where);
    if (!one) return;
    mark(one, !selected.has(one.index));
    paint();
    say(`${selected.has(one.index) ? "Selected" : "Not selected"}, ${whole(selected.size)} in all.`);
  };
  const selectTo = async (where) => {
    const [low, high] = [Math.min(anchor, where), Math.min(Math.max(anchor, where), Math.min(anchor, where) + 499)];
    for (let k = low; k <= high; k += 1) { const one = await itemAt(k); if (one) mark(one, true); }
    paint();
  };
  const fifty = async () => {
    const one = await itemAt(at);
    if (!one) return;
    if (String(view.given) !== String(one.given) || String(view.suggested) !== String(one.suggested)) {
      await filter({ given: String(one.given), suggested: String(one.suggested), state: "open" });
      at = 0;
    }
    selected.clear();
    let first = -1;
    for (let k = at; k < total && selected.size < FIFTY; k += 1) {
      const like = await itemAt(k);
      if (!like || like.label !== NOBODY) continue;
      if (first < 0) first = k;
      selected.set(like.index, like);
    }
    move(Math.max(first, 0), false);
    say(`${whole(selected.size)} selected: ${question(one)}.`);
  };
  const move = (where, extends_) => {
    at = Math.max(0, Math.min(total - 1, where));
    if (!extends_) anchor = at;
    const top = Math.floor(at / shape.columns) * shape.height, seen = $("grid").clientHeight;
    const begin = $("grid").scrollTop * stretch();
    if (top < begin) $("grid").scrollTop = top / stretch();
    else if (top + shape.height > begin + seen) $("grid").scrollTop = (top + shape.height - seen) / stretch();
    paint();
    if (extends_) selectTo(at);
    else itemAt(at).then((one) => one && say(`${question(one)}, ${chance(one.sure)} sure. ${decision(one)}`));
  };
  const openFrom = async (where) => { setMode("one", where); };
  let painting = false;
  $("grid").addEventListener("scroll", () => {
    if (painting) return;
    painting = true;
    requestAnimationFrame(() => { painting = false; paint(); });
  }, { passive: true });
  new ResizeObserver(() => { if (mode === "grid" && start) { measure(); paint(); } }).observe($("grid"));
  $("grid").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = Math.max(1, Math.floor($("grid").clientHeight / shape.height));
    const goes = {
      ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + shape.columns, ArrowUp: at - shape.columns,
      PageDown: at + rows * shape.columns, PageUp: at - rows * shape.columns, Home: 0, End: total - 1,
    };
    if (event.key in goes) { event.preventDefault(); event.stopPropagation(); move(goes[event.key], event.shiftKey); }
    else if (event.key === " ") { event.preventDefault(); toggle(at); }
    else if (event.key === "Enter") { event.preventDefault(); openFrom(at); }
  });
  const clearSelection = () => { selected.clear(); paint(); say("Nothing selected."); };

  const setMode = async (wanted_, where = place) => {
    mode = wanted_;
    cells.forEach(({ element }) => element.remove());
    cells.clear();
    if (mode === "grid") {
      at = anchor = Math.min(where, Math.max(0, total - 1));
      show("all");
      await layOut();
      move(at, false);
      $("grid").focus();
    } else if (total) {
      place = where;
      await goTo(where);
      $("question").focus();
    } else finish();
    saveWhere();
  };

  // Keys and buttons.
  const chosen = () => (mode === "grid" ? [...selected.values()] : item && !$("one").hidden ? [item] : []);
  const step = async (by) => {
    if (mode === "grid" || busy) return;
    if (by < 0) { if (place > 0) await goTo(place - 1); else say("This is the first one."); return; }
    if (view.state === "open") await arrive(place + 1 < total ? place + 1 : 0);
    else if (place + 1 < total) await goTo(place + 1);
    else say("This is the last one.");
  };
  const actions = {
    a: () => settle(chosen(), "suggested"), k: () => settle(chosen(), "given"),
    u: () => settle(chosen(), null), c: () => openPicker(chosen()),
    s: () => step(1), b: () => step(-1), ArrowRight: () => step(1), ArrowLeft: () => step(-1), z: undo,
    g: () => setMode(mode === "grid" ? "one" : "grid", mode === "grid" ? at : place),
    f: () => mode === "grid" && fifty(), p: () => { $("filters").open = true; controls.pair.focus(); },
    Escape: () => mode === "grid" && clearSelection(), "?": () => $("keys").showModal(),
  };
  for (const n of [1, 2, 3, 4, 5]) {
    actions[n] = () => { if (mode === "one" && item && item.likely && item.likely[n - 1] !== undefined) settle([item], item.likely[n - 1]); };
  }
  document.addEventListener("keydown", (event) => {
    if (!start || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const field = event.target.closest("input, select, textarea, summary");
    // For a moment, what had the focus in a window that was just closed still has it.
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
  $("mode-one").addEventListener("click", () => mode === "one" || setMode("one", at));
  $("mode-grid").addEventListener("click", () => mode === "grid" || setMode("grid", place));
  $("picker-close").addEventListener("click", () => $("picker").close());
  $("keys-close").addEventListener("click", () => $("keys").close());
  $("keys-on").checked = remembered(localStorage, "proselflc-keys", true) !== false;
  $("keys-on").addEventListener("change", () => remember(localStorage, "proselflc-keys", $("keys-on").checked));
  // Somebody may have decided in another window.
  addEventListener("focus", async () => {
    if (!start || busy) return;
    try { takeOver(await once(`/api/state?since=${line}`)); } catch { return; }
    if (mode === "grid") paint();
    else if (item && !$("one").hidden) {
      $("standing").hidden = item.label === NOBODY;
      $("standing").textContent = item.label === NOBODY ? "" : `Decided meanwhile: ${decision(item)}`;
    }
  });

  (async () => {
    start = await ask("/api/start");
    names = start.names;
    history = start.recent;
    document.title = `Review of ${start.title}`;
    $("title").textContent = `Review of ${start.title}`;
    $("run").textContent = start.run;
    $("sample-note").hidden = !start.isSample;
    document.body.dataset.kind = start.kind || "none";
    const classes = () => names.map((name, k) => option(String(k), name));
    controls.given.replaceChildren(option("", "any class"), ...classes());
    controls.suggested.replaceChildren(option("", "any class"), ...classes());
    if (matchMedia("(max-width: 48rem)").matches) $("filters").open = false;
    line = start.line;
    view.line = start.line;
    const where = remembered(sessionStorage, "proselflc-where", null);
    if (where && where.run === start.run && where.view.line <= start.line) {
      ({ view, mode, place } = where);
      at = anchor = place;
    }
    takeOver(start);
    showFilters();
    await page(0);
    place = Math.min(place, Math.max(0, total - 1));
    if (mode === "grid") { await setMode("grid", place); } else await arrive();
    document.body.classList.add("ready");
  })();
})();
