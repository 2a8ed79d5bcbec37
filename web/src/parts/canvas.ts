// What a canvas needs of the style sheet: the colours behind CSS variables, and a word when they change.
import { useEffect, useState } from "preact/hooks";

/** Returns the colour that a CSS variable (`--accent`) or a colour stands for, on this element. */
export function colour(element: Element, name: string): string {
  if (!name.startsWith("--")) return name;
  return getComputedStyle(element).getPropertyValue(name).trim() || "gray";
}

/** Returns a number that changes whenever the theme does, so that a canvas is drawn anew. */
export function useTheme(): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const next = () => setTurn((now) => now + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const watch = new MutationObserver(next);
    watch.observe(document.documentElement, { attributes: true });
    dark.addEventListener("change", next);
    return () => {
      watch.disconnect();
      dark.removeEventListener("change", next);
    };
  }, []);
  return turn;
}

/** Calls back with the width of an element in CSS pixels, at once and whenever it changes. */
export function useWidth(place: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const measure = () => setWidth(Math.floor(element.clientWidth));
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    measure();
    return () => watch.disconnect();
  }, []);
  return width;
}
