// Storage in the browser: settings for all tabs, and the current position for this tab.

export const remembered = (store, name, otherwise) => {
  try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
};
export const remember = (store, name, value) => {
  try { store.setItem(name, JSON.stringify(value)); } catch { /* private windows may refuse */ }
};
