(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  root.classList.add("js");

  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const offer = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; offer(); });
  system.addEventListener("change", offer);
  offer();

  const words = new Intl.Collator("en", { numeric: true });
  for (const heading of all("table.sortable thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const body = heading.closest("table").tBodies[0];
      const numeric = heading.classList.contains("number");
      const was = heading.getAttribute("aria-sort");
      const down = was ? was === "ascending" : numeric;
      all("th[aria-sort]", heading.parentNode).forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[heading.cellIndex];
        return numeric ? Number(cell.dataset.order ?? NaN) : cell.textContent;
      };
      const compare = (a, b) => {
        if (!numeric) return words.compare(a, b) * (down ? -1 : 1);
        if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b);
        return (a - b) * (down ? -1 : 1);
      };
      body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
    });
  }

  const atlas = document.getElementById("map");
  const drawMap = (cardOf = () => undefined, reveal = () => {}) => {
    if (!atlas) return;
    const data = JSON.parse(document.getElementById("map-data").textContent);
    pointMap(atlas, data, {
      canOpen: (index) => Boolean(cardOf(index)),
      open: (index) => reveal(cardOf(index)),
      picture: (index) => cardOf(index)?.querySelector("img")?.cloneNode() ?? null,
    });
  };

  const controls = document.getElementById("controls");
  if (!controls) { drawMap(); return; }
  const FEW = matchMedia("(max-width: 40rem)").matches ? 12 : 24;
  const list = document.getElementById("cards");
  const count = document.getElementById("count");
  const more = document.getElementById("more");
  const nothing = document.getElementById("nothing");
  const cards = all(".card", list).map((card) => ({
    card, ...card.dataset, id: card.querySelector(".id").title,
  }));
  for (const one of cards) one.text = `${one.card.textContent} ${one.id}`.toLowerCase();
  let isWhole = false;
  const orders = {
    quality: () => 0, sure: (a, b) => b.sure - a.sure, given: (a, b) => a.given - b.given,
    suggested: (a, b) => a.suggested - b.suggested, id: (a, b) => words.compare(a.id, b.id),
  };
  const show = () => {
    const { given, suggested, order, search } = Object.fromEntries(new FormData(controls));
    const sought = search.trim().toLowerCase();
    cards.sort((a, b) => orders[order](a, b) || a.quality - b.quality || a.place - b.place);
    let matching = 0;
    for (const one of cards) {
      const fits = (!given || one.given === given) && (!suggested || one.suggested === suggested)
        && (!sought || one.text.includes(sought));
      matching += fits;
      one.card.classList.toggle("away", !fits || (!isWhole && matching > FEW));
    }
    list.append(...cards.map((one) => one.card));
    const shown = isWhole ? matching : Math.min(matching, FEW);
    count.textContent = `Showing ${shown}`
      + (matching < cards.length ? ` of ${matching} that match,` : "");
    nothing.hidden = matching > 0;
    more.hidden = shown >= matching;
    more.textContent = `Show all ${matching}`;
  };
  controls.addEventListener("input", show);
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.addEventListener("reset", () => setTimeout(() => { show(); controls.elements.search.focus(); }));
  more.addEventListener("click", () => {
    isWhole = true;
    show();
    const next = cards.filter(({ card }) => !card.classList.contains("away"))[FEW].card;
    next.tabIndex = -1; // the button is gone: the keyboard goes on with what it has shown
    next.focus();
  });
  show();

  const byPlace = new Map(cards.map(({ card, place }) => [Number(place), card]));
  drawMap((index) => byPlace.get(index), (card) => {
    if (card.classList.contains("away")) {
      for (const name of ["given", "suggested", "search"]) controls.elements[name].value = "";
      isWhole = true;
      show();
    }
    card.tabIndex = -1;
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "center" });
  });
})();
