// The timeline of a single file: opscope/viewer/whole_timeline.py stores it, timeline/local.ts reads what is made here.
import { type Axis, filled, headed, numbers, signed } from "./axes";
import { unpack } from "./packed";

interface Head {
  start: string;
  lanes: { strips: { many: number; wide: boolean }[] }[];
  axis: number[];
  sizes: [number, number];
}

/** The slices, strip by strip: the places of their times on their axes, their names and kinds. */
export interface Slices {
  head: Head;
  strips: { axis: number; wide: boolean; from: number; after: number }[];
  start: Float64Array;
  end: Float64Array;
  name: Uint32Array;
  kind: Uint8Array;
}

export function readSlices(bytes: Uint8Array): Slices {
  const { head, rest } = headed<Head>(bytes);
  let many = 0;
  const strips = head.lanes
    .flatMap((lane) => lane.strips)
    .map((strip, number) => {
      const from = many;
      many += strip.many;
      return { axis: head.axis[number]!, wide: strip.wide, from, after: many };
    });
  const [wide, other] = head.sizes;
  const start = numbers(rest, many, wide);
  const end = numbers(rest.subarray(many * wide), many, other);
  for (const { from, after } of strips) {
    let place = 0;
    for (let row = from; row < after; row++) {
      start[row] = place += signed(start[row]!);
      end[row] = place + signed(end[row]!);
    }
  }
  const table = unpack(rest.subarray(many * (wide + other)));
  const column = (name: string) => {
    const one = table.columns.get(name);
    return (row: number) => Number(one?.value(row) ?? 0);
  };
  return {
    head,
    strips,
    start,
    end,
    name: filled(new Uint32Array(many), column("name")),
    kind: filled(new Uint8Array(many), column("kind")),
  };
}

/** What begins or ends at each place of each axis: 0 for nothing, else a number by the slice's name. */
export function eventsOf(slices: Slices, sizes: number[]): Uint32Array[] {
  const events = sizes.map((size) => new Uint32Array(size));
  for (const [places, kind] of [[slices.start, 1], [slices.end, 2]] as const) {
    for (const { axis, from, after } of slices.strips) {
      for (let row = from; row < after; row++) events[axis]![places[row]!] = slices.name[row]! * 2 + kind;
    }
  }
  return events;
}

/** The typed arrays of opscope/viewer/timeline/whole.py. */
export function wholeTimeline(slices: Slices, axes: Axis[]): ArrayBuffer {
  const { axis: _, sizes: __, ...head } = slices.head;
  const text = new TextEncoder().encode(JSON.stringify(head));
  const padded = (size: number) => Math.ceil(size / 8) * 8;
  const first = padded(4 + text.length);
  const size = slices.strips.reduce((sum, { wide, from, after }) => {
    const many = after - from;
    return sum + 2 * padded(many * (wide ? 8 : 4)) + padded(4 * many) + padded(many);
  }, first);
  const buffer = new ArrayBuffer(size);
  new DataView(buffer).setUint32(0, text.length, true);
  new Uint8Array(buffer).set(text, 4);
  let at = first;
  const put = <T extends { set(values: ArrayLike<number>): void; byteLength: number }>(array: T, values: ArrayLike<number>) => {
    array.set(values);
    at += padded(array.byteLength);
  };
  const base = BigInt(slices.head.start);
  for (const { axis, wide, from, after } of slices.strips) {
    const { first: begins, offsets } = axes[axis] ?? { first: base, offsets: new Float64Array(0) };
    const moved = Number(begins - base);
    const many = after - from;
    const start = filled(new Float64Array(many), (row) => offsets[slices.start[from + row]!]! + moved);
    const lasted = filled(new Float64Array(many), (row) => offsets[slices.end[from + row]!]! + moved - start[row]!);
    for (const times of [start, lasted]) {
      put(wide ? new Float64Array(buffer, at, many) : new Int32Array(buffer, at, many), times);
    }
    put(new Uint32Array(buffer, at, many), slices.name.subarray(from, after));
    put(new Uint8Array(buffer, at, many), slices.kind.subarray(from, after));
  }
  return buffer;
}
