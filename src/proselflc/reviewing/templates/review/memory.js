// What is remembered: in this browser how the page looks, and in this tab where it was.

export const remembered = (store, name, otherwise) => {
  try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
};
export const remember = (store, name, value) => {
  try { store.setItem(name, JSON.stringify(value)); } catch { /* private windows may refuse */ }
};
