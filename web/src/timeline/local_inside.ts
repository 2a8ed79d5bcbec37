// What is right inside a slice, and what a kernel waited for: as opscope/viewer/timeline/inside.py says it.
import type { Inside, Waited } from "./data";
import { part, type Strip } from "./local_picture";

const NAMES = 8;
const ADDED = 100_000;

export function insideOf(strips: Strip[], names: string[], level: number, index: number): Inside | null {
  const [strip, deeper] = [strips[level]!, strips[level + 1]];
  if (!deeper) return null;
  const low = strip.start[index]!;
  const high = low + strip.lasted[index]!;
  const [first, after] = part(deeper, low, high);
  const many = after - first;
  if (many <= 0) return null;
  if (many > ADDED) return { slices: many, time: null, self_time: null, names: [] };
  const sums = new Map<number, [number, number]>();
  for (let place = first; place < after; place++) {
    const of = sums.get(deeper.name[place]!) ?? [0, 0];
    sums.set(deeper.name[place]!, [of[0] + 1, of[1] + deeper.lasted[place]!]);
  }
  const time = [...sums.values()].reduce((sum, one) => sum + one[1], 0);
  const named = [...sums].map(([name, [slices, total]]) => ({ name: names[name]!, slices, time: total }));
  named.sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return { slices: many, time, self_time: Math.max(0, high - low - time), names: named.slice(0, NAMES) };
}

export function waitedFor(strips: Strip[], names: string[], level: number, index: number, launchedBefore: number | undefined): Waited | null {
  if (launchedBefore === undefined || strips.length !== 1) return null;
  const strip = strips[level]!;
  const start = strip.start[index]!;
  const free = index === 0 ? null : strip.start[index - 1]! + strip.lasted[index - 1]!;
  const behind = free === null ? 0 : Math.max(0, free - (start - launchedBefore));
  return {
    behind: behind ? names[strip.name[index - 1]!]! : null,
    behind_time: behind,
    launch_time: Math.max(0, launchedBefore - behind),
    idle_before: free === null ? null : Math.max(0, start - free),
  };
}
