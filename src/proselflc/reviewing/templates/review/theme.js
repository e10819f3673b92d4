// The light or dark theme: the system's, until the user chooses.

import { $ } from "./elements.js";
import { remember, remembered } from "./memory.js";

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
const offer = () => { $("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };

const chosen = remembered(localStorage, "proselflc-theme", "");
if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
$("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  remember(localStorage, "proselflc-theme", root.dataset.theme);
  offer();
});
system.addEventListener("change", offer);
offer();
