// Light, dark, or as the system has it; kept between visits where the browser allows that.
import { useEffect, useState } from "preact/hooks";

type Choice = "auto" | "light" | "dark";

const KEY = "opscope-theme";
const CHANGED = "opscope-theme";
const system = () => matchMedia("(prefers-color-scheme: dark)");

function chosen(): Choice {
  try {
    const kept = localStorage.getItem(KEY);
    if (kept === "light" || kept === "dark") return kept;
  } catch {
    // A sandboxed frame has no storage
  }
  return (document.documentElement.dataset["choice"] as Choice | undefined) ?? "auto";
}

/** Holds a theme between visits; the system's own is followed as it changes. */
export function choose(theme: "light" | "dark"): void {
  const choice: Choice = theme === (system().matches ? "dark" : "light") ? "auto" : theme;
  document.documentElement.dataset["choice"] = choice;
  try {
    if (choice === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
  } catch {
    // It then holds until the page is left
  }
  apply();
}

/** Sets `data-theme` of the document to what is in force, and tells those who draw on a canvas. */
export function apply(): void {
  const choice = chosen();
  const theme = choice === "auto" ? (system().matches ? "dark" : "light") : choice;
  if (document.documentElement.dataset["theme"] === theme) return;
  document.documentElement.dataset["theme"] = theme;
  dispatchEvent(new Event(CHANGED));
}

export function follow(): void {
  apply();
  system().addEventListener("change", apply);
}

/** The theme in force; the component is drawn again when it changes. */
export function useTheme(): "light" | "dark" {
  const now = () => (document.documentElement.dataset["theme"] === "dark" ? "dark" : "light");
  const [theme, set] = useState<"light" | "dark">(now);
  useEffect(() => {
    const changed = () => set(now());
    addEventListener(CHANGED, changed);
    return () => removeEventListener(CHANGED, changed);
  }, []);
  return theme;
}
