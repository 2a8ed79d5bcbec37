// Where each lane and curve lies, from top to bottom.
import { show, UNITS } from "../parts/format";
import type { LaneSaid } from "./data";
import type { Curve } from "./wire";

export const STRIP = 17;
export const STREAM = 22;
export const HEADING = 20;
export const TITLE = 15;
export const CURVE = 38;
export const RULER = 22;
/** Strips of threads that are open at first. */
const OPEN_AT_FIRST = 8;

export type Band =
  | { kind: "heading"; y: number; height: number; text: string; folds?: string }
  | { kind: "curve"; y: number; height: number; curve: number; title: string; scale: string; how: string }
  | { kind: "lane"; y: number; height: number; lane: LaneSaid; strips: number; strip: number; top: number };

export interface Layout {
  bands: Band[];
  height: number;
}

/** Lanes process by process: the host's, then what ran on each device. */
export function ordered(host: LaneSaid[], device: LaneSaid[]): LaneSaid[] {
  const processes = [...new Set([...host, ...device].map((one) => one.process))];
  return processes.flatMap((process) => [...host, ...device].filter((one) => one.process === process));
}

/** The lanes whose every strip is shown at first: streams, and the busiest threads as far as they fit. */
export function openAtFirst(lanes: LaneSaid[]): Set<string> {
  const open = new Set<string>();
  let room = OPEN_AT_FIRST;
  for (const lane of lanes) {
    if (lane.kind === "stream" || lane.kind === "steps") open.add(lane.id);
    else if (lane.kind === "thread" && room > 0) {
      open.add(lane.id);
      room -= lane.levels;
    }
  }
  return open;
}

/** What is open as lanes are: the sampled curves below the lanes. */
export const SAMPLED = "sampled";
/** Sampled curves that stand above the lanes; of a machine without devices those of the processors. */
const ABOVE = ["GPU memory used"];
const ABOVE_WITHOUT = ["process CPU", "process memory"];

/** The unit behind a figure that `show` gives without one: "%", "MHz", "°C". */
function unitOf(unit: string): string {
  return UNITS.has(unit) || !unit ? "" : ` ${unit}`;
}

/** `sampled`: how many of the curves, the last ones, are sampled. Most of these stand below the lanes. */
export function laidOut(lanes: LaneSaid[], curves: Curve[], sampled: number, open: Set<string>, narrow: boolean): Layout {
  const bands: Band[] = [];
  let y = RULER;
  const used = new Set(curves.filter((one) => one.device >= 0).map((one) => `${one.process}:${one.device}`)).size;
  const many = used > 1;
  // a device that one process alone uses is named by its number
  const alone = new Set(curves.filter((one) => one.device >= 0).map((one) => one.device)).size === used;
  const first = curves.length - sampled;
  const above = first ? ABOVE : ABOVE_WITHOUT;
  const place = (one: Curve, curve: number): void => {
    // the host's memory beside a device's
    const twin = curves.some((other) => other !== one && other.title === one.title && other.process === one.process);
    const named = many ? `device ${one.device}${alone ? "" : ` of process ${one.process}`}: ` : twin ? `device ${one.device}: ` : "";
    // first, as the end of a long title is cut
    const where = one.device >= 0 ? named : twin ? "CPU: " : "";
    const scale = one.most === null || one.most <= 0 ? "" : `0 to ${show(one.most, one.unit)}${unitOf(one.unit)}`;
    const height = CURVE + (narrow ? TITLE : 0);
    bands.push({ kind: "curve", y, height, curve, title: where + (where ? one.title.replace(/^device /, "") : one.title), scale, how: one.how });
    y += height;
  };
  const below: number[] = [];
  curves.forEach((one, curve) => {
    if (curve < first || above.includes(one.title)) place(one, curve);
    else below.push(curve);
  });
  let group = "";
  for (const lane of lanes) {
    if (lane.group !== group) {
      group = lane.group;
      bands.push({ kind: "heading", y, height: HEADING, text: group });
      y += HEADING;
    }
    const strips = open.has(lane.id) ? lane.levels : Math.min(1, lane.levels);
    const strip = lane.kind === "stream" && strips === 1 ? STREAM : STRIP;
    const top = narrow ? TITLE : 2;
    const height = top + strips * strip + 3;
    bands.push({ kind: "lane", y, height, lane, strips, strip, top });
    y += height;
  }
  if (below.length) {
    bands.push({ kind: "heading", y, height: HEADING, text: below.length === 1 ? "1 sampled curve" : `${below.length} sampled curves`, folds: SAMPLED });
    y += HEADING;
    if (open.has(SAMPLED)) for (const curve of below) place(curves[curve]!, curve);
  }
  return { bands, height: y + 8 };
}
