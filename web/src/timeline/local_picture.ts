// Pictures and curves of a page without a server: to the bit what opscope/viewer/timeline/window.py answers.
import type { StripPicture } from "./wire";

/** A slice of so many columns is drawn by itself. */
const DRAWN = 3;

/** Slices of which no two overlap, in order; times are ns from the file's first. */
export interface Strip {
  start: ArrayLike<number>;
  lasted: ArrayLike<number>;
  name: Uint32Array;
  kind: Uint8Array;
  many: number;
}

/** Equal columns of a window, with edges in whole ns from its start. */
class Columns {
  private readonly whole: number;
  private readonly rest: number;

  constructor(
    readonly span: number,
    readonly many: number,
  ) {
    this.whole = Math.floor(span / many);
    this.rest = span % many;
  }

  edge(column: number): number {
    return this.whole * column + Math.floor((this.rest * column) / this.many);
  }

  /** The column that a time is in. */
  at(time: number): number {
    let column = Math.min(this.many - 1, Math.floor((time / this.span) * this.many));
    while (this.edge(column) > time) column -= 1;
    while (this.edge(column + 1) <= time) column += 1;
    return column;
  }

  /** Calls `take` with each column that `[begin, close)` has a part of, and the ns of it. */
  divide(begin: number, close: number, take: (column: number, time: number) => void): void {
    if (close <= begin) return;
    for (let column = this.at(begin), left = begin; left < close; column++) {
      const right = Math.min(close, this.edge(column + 1));
      take(column, right - left);
      left = right;
    }
  }
}

/** The first slice that begins at `time` or later. */
export function since(strip: Strip, time: number): number {
  let low = 0;
  let high = strip.many;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (strip.start[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The slices that have a moment in a span: the first, and the one after the last. */
export function part(strip: Strip, low: number, high: number): [number, number] {
  let first = since(strip, low);
  if (first > 0 && strip.start[first - 1]! + strip.lasted[first - 1]! > low) first -= 1;
  return [first, Math.max(first, since(strip, high))];
}

export function pictured(strip: Strip, low: number, span: number, many: number): StripPicture {
  const [first, after] = part(strip, low, low + span);
  const clip = (place: number): [number, number] => {
    const begin = strip.start[place]! - low;
    return [Math.max(0, begin), Math.min(span, begin + strip.lasted[place]!)];
  };
  let busy = 0;
  for (let place = first; place < after; place++) {
    const [begin, close] = clip(place);
    busy += Math.max(0, close - begin);
  }
  if (after - first <= many) {
    const all = Array.from({ length: after - first }, (_, place) => first + place);
    return { ...taken(strip, all, low), busy, mode: "rows", slices: all.length, kinds: [], shares: new Uint8Array(0), longest: new Int32Array(0) };
  }
  const columns = new Columns(span, many);
  const sums = new Map<number, Float64Array>();
  const longest = new Int32Array(many).fill(-1);
  for (let place = first; place < after; place++) {
    const [begin, close] = clip(place);
    const kind = strip.kind[place]!;
    // of equal ones the last
    const seen = (column: number) => {
      const best = longest[column]!;
      if (best < 0 || strip.lasted[place]! >= strip.lasted[best]!) longest[column] = place;
    };
    if (close <= begin) seen(columns.at(begin));
    columns.divide(begin, close, (column, time) => {
      seen(column);
      let of = sums.get(kind);
      if (!of) sums.set(kind, (of = new Float64Array(many)));
      of[column]! += time;
    });
  }
  const kinds = [...sums.keys()].sort((a, b) => a - b);
  const shares = new Uint8Array(kinds.length * many);
  kinds.forEach((kind, row) =>
    sums.get(kind)!.forEach((time, column) => {
      const width = columns.edge(column + 1) - columns.edge(column);
      shares[row * many + column] = Math.floor((255 * time + width - 1) / width);
    }),
  );
  const drawn = [...new Set(longest)].filter((place) => place >= 0 && strip.lasted[place]! * many >= DRAWN * span).sort((a, b) => a - b);
  return { ...taken(strip, drawn, low), busy, mode: "columns", slices: after - first, kinds, shares, longest };
}

function taken(strip: Strip, places: number[], low: number) {
  return {
    many: places.length,
    index: (place: number) => places[place]!,
    start: places.map((one) => strip.start[one]! - low),
    lasted: places.map((one) => strip.lasted[one]!),
    name: places.map((one) => strip.name[one]!),
    kind: Uint8Array.from(places, (one) => strip.kind[one]!),
  };
}

/** The share of each column in which a slice of any strip runs. */
export function busyShares(strips: Strip[], low: number, span: number, many: number): Float32Array {
  const spans: [number, number][] = [];
  for (const strip of strips) {
    const [first, after] = part(strip, low, low + span);
    for (let place = first; place < after; place++) {
      const begin = strip.start[place]! - low;
      spans.push([Math.max(0, begin), Math.min(span, begin + strip.lasted[place]!)]);
    }
  }
  const columns = new Columns(span, many);
  const found = new Float64Array(many);
  let reached = 0;
  for (const [from, to] of spans.sort((a, b) => a[0] - b[0])) {
    columns.divide(Math.max(from, reached), to, (column, time) => (found[column]! += time));
    reached = Math.max(reached, to);
  }
  return Float32Array.from(found, (time, column) => time / (columns.edge(column + 1) - columns.edge(column)));
}

/** The time that at least one of the spans covers. */
export function union(spans: [number, number][]): number {
  let reached = -Infinity;
  let total = 0;
  for (const [from, to] of spans.sort((a, b) => a[0] - b[0])) {
    total += Math.max(0, to - Math.max(from, reached));
    reached = Math.max(reached, to);
  }
  return total;
}
