// What a canvas needs of the style sheet: the colours behind CSS variables, and its width.
import { useEffect, useState } from "preact/hooks";

const pens = new Map<string, CanvasRenderingContext2D | null>();

/** The width of a text in px in the page's own font, bold or not; each font and system has its own. */
export function textWidth(text: string, bold: boolean): number {
  const weight = bold ? "600" : "400";
  if (!pens.has(weight)) {
    const pen = document.createElement("canvas").getContext("2d");
    const { fontSize, fontFamily } = getComputedStyle(document.body);
    if (pen) pen.font = `${weight} ${fontSize} ${fontFamily}`;
    pens.set(weight, pen);
  }
  return pens.get(weight)?.measureText(text).width ?? text.length * 8;
}

/** Returns the colour that a CSS variable (`--accent`) or a colour stands for, on this element. */
export function colour(element: Element, name: string): string {
  if (!name.startsWith("--")) return name;
  return getComputedStyle(element).getPropertyValue(name).trim() || "gray";
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
