// Elements of the page, and how numbers are written there.

export const $ = (id) => document.getElementById(id);

// Names and texts of the data are untrusted: they become text, never markup.
export const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
export const bdi = (text) => make("bdi", { textContent: text });
export const option = (value, text) => make("option", { value, textContent: text });
export const drawn = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

export const whole = (number) => Math.round(number).toLocaleString("en");
export const number = (value) => {
  if (value === 0) return "0";
  const isPlain = Math.abs(value) >= 1e-3 && Math.abs(value) < 1e7;
  const text = isPlain ? Number(value.toPrecision(4)).toLocaleString("en") : value.toPrecision(3);
  return text.replace("-", "−");
};
export const chance = (p) => {
  if (p === null || p === undefined) return "unknown";
  if (p < 0.005) return "<1%";
  return p > 0.995 ? ">99%" : `${Math.round(100 * p)}%`;
};
export const time = (at) => new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });

// Announce a text to screen readers.
export const say = (text) => { $("said").textContent = text; };
