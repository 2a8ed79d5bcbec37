// The timeline in a page without a server: the same answers from the arrays of opscope/viewer/timeline/whole.py.
import { show } from "../parts/format";
import type { Detail, Found, Said, SliceAt, Sums, Timeline } from "./data";
import { type Part, toldOf } from "./local_detail";
import { insideOf, waitedFor } from "./local_inside";
import { busyShares, part, pictured, type Strip, union } from "./local_picture";
import { type CurvePicture, type Head, type Picture, Reader, type StripPicture } from "./wire";

const NAMED = 100;

interface Held {
  base: bigint;
  said: Said[];
  names: string[];
  left: { slices: number; time: number };
  strips: Map<string, Strip[]>;
  place: Map<string, number>;
}

export class LocalTimeline implements Timeline {
  private words = "";
  private readonly held: Promise<Held>;

  /** `table`: a table of the file by its name, null if it has none. */
  constructor(
    bytes: Promise<ArrayBuffer>,
    private readonly table: (name: string) => Promise<Part | null> = () => Promise.resolve(null),
  ) {
    this.held = bytes.then((buffer) => {
      const held = read(buffer);
      if (held.left.slices > 0) {
        this.words = `This file holds the longest slices; ${show(held.left.slices, "count")} shorter ones, ${show(held.left.time, "ns")} in all, are left out. opscope view shows every one.`;
      }
      return held;
    });
    this.held.catch(() => undefined);
  }

  left(): string {
    return this.words;
  }

  async settled(): Promise<void> {}

  async lanes(part: "host" | "device"): Promise<Said> {
    return (await this.held).said[part === "host" ? 0 : 1]!;
  }

  async picture(lanes: string[], start: bigint, end: bigint, columns: number): Promise<Picture> {
    const held = await this.held;
    const low = Number(start - held.base);
    const span = Number(end - start);
    const most = Math.max(1, Math.min(columns, span));
    const found = new Map<string, StripPicture[]>();
    for (const wanted of lanes) {
      const [id, levels] = wanted.split(":") as [string, string?];
      const strips = held.strips.get(id) ?? [];
      found.set(
        id,
        strips.slice(0, levels ? Number(levels) : undefined).map((one) => pictured(one, low, span, most)),
      );
    }
    return { start, span, columns: most, lanes: found, bytes: 0 };
  }

  async curves(of: string, start: bigint, end: bigint, columns: number): Promise<CurvePicture> {
    const held = await this.held;
    const span = Number(end - start);
    const most = Math.max(1, Math.min(columns, span));
    const none = { start, span, columns: most, curves: [], left: 0 };
    if (of !== "busy" || held.left.slices > 0) return none;
    const devices = new Map<string, { process: number; device: number; lanes: string[] }>();
    for (const lane of held.said[1]!.lanes) {
      const key = `${lane.process}:${lane.device}`;
      const one = devices.get(key) ?? { process: lane.process, device: lane.device ?? 0, lanes: [] };
      one.lanes.push(lane.id);
      devices.set(key, one);
    }
    const low = Number(start - held.base);
    return {
      ...none,
      curves: [...devices.values()].map((one) => ({
        title: "device busy",
        process: one.process,
        device: one.device,
        unit: "fraction",
        most: 1,
        how: "share of the column in which a kernel or copy ran, on any stream",
        values: busyShares(one.lanes.flatMap((id) => held.strips.get(id)!), low, span, most),
      })),
    };
  }

  async names(ids: number[]): Promise<Map<number, string>> {
    const { names } = await this.held;
    return new Map(ids.map((id) => [id, names[id] ?? ""]));
  }

  async detail(at: SliceAt, brief = false): Promise<Detail> {
    const held = await this.held;
    const strip = held.strips.get(at.lane)?.[at.level];
    if (!strip || at.index >= strip.many) throw new Error("There is no such slice in this file.");
    const lane = held.said.flatMap((one) => one.lanes).find((one) => one.id === at.lane)!;
    const start = held.base + BigInt(strip.start[at.index]!);
    const time = strip.lasted[at.index]!;
    const name = held.names[strip.name[at.index]!]!;
    const kind = held.said[0]!.categories[strip.kind[at.index]!] ?? "";
    const lanes = held.said.flatMap((one) => one.lanes);
    const wanted = { lane, name, start, end: start + BigInt(time) };
    const told = brief ? { told: {}, flows: [], more: 0 } : await toldOf(wanted, this.table, { ...held, lanes });
    return {
      ...at,
      name,
      kind,
      where: `${lane.group}: ${lane.title}`,
      start: String(start),
      end: String(start + BigInt(time)),
      time,
      ...told,
      ...(brief
        ? {}
        : {
            inside: insideOf(held.strips.get(at.lane)!, held.names, at.level, at.index),
            waited: waitedFor(held.strips.get(at.lane)!, held.names, at.level, at.index, told.told["launched_before"] as number | undefined),
          }),
    };
  }

  async find(text: string, from: bigint, back: boolean, after: SliceAt | null, _signal?: AbortSignal, exact = false): Promise<Found> {
    const held = await this.held;
    const wanted = text.toLowerCase();
    const named = held.names.map((one) => (exact ? one === text : one.toLowerCase().includes(wanted)));
    const hits: [number, number, number, number, string][] = [];
    for (const [id, strips] of held.strips) {
      strips.forEach((strip, level) => {
        for (let index = 0; index < strip.many; index++) {
          if (named[strip.name[index]!]) hits.push([strip.start[index]!, held.place.get(id)!, level, index, id]);
        }
      });
    }
    if (!hits.length) return { total: 0, found: null };
    const order = (a: readonly number[], b: readonly number[]) => a[0]! - b[0]! || a[1]! - b[1]! || a[2]! - b[2]! || a[3]! - b[3]!;
    hits.sort((a, b) => order(a as unknown as number[], b as unknown as number[]));
    const time = Number(from - held.base);
    const last = back ? Infinity : -1;
    const cursor = after
      ? [time, held.place.get(after.lane) ?? last, after.level, after.index]
      : [time, last, last, last];
    let number = hits.findIndex((one) => order(one as unknown as number[], cursor) > (back ? -1 : 0));
    if (number < 0) number = hits.length;
    number = back ? (number - 1 + hits.length) % hits.length : number % hits.length;
    const [, , level, index, lane] = hits[number]!;
    const strip = held.strips.get(lane)![level]!;
    const start = held.base + BigInt(strip.start[index]!);
    return {
      total: hits.length,
      number: number + 1,
      found: {
        lane,
        level,
        index,
        start: String(start),
        end: String(start + BigInt(strip.lasted[index]!)),
        name: held.names[strip.name[index]!]!,
      },
    };
  }

  async sums(start: bigint, end: bigint, lanes: string[]): Promise<Sums> {
    const held = await this.held;
    const low = Number(start - held.base);
    const high = Number(end - held.base);
    const names = new Map<number, { slices: number; time: number }>();
    const kinds = new Map<number, { slices: number; time: number }>();
    const rows = lanes.map((lane) => {
      const row = { lane, slices: 0, time: 0, busy: 0 };
      const spans: [number, number][] = [];
      for (const strip of held.strips.get(lane) ?? []) {
        const [first, after] = part(strip, low, high);
        for (let place = first; place < after; place++) {
          const begin = Math.max(low, strip.start[place]!);
          const close = Math.min(high, strip.start[place]! + strip.lasted[place]!);
          spans.push([begin, close]);
          row.slices += 1;
          row.time += close - begin;
          count(names, strip.name[place]!, close - begin);
          count(kinds, strip.kind[place]!, close - begin);
        }
      }
      row.busy = union(spans);
      return row;
    });
    const byTime = [...names].sort((a, b) => b[1].time - a[1].time || b[1].slices - a[1].slices);
    const rest = byTime.slice(NAMED);
    const total = (of: { slices: number; time: number }[], what: "slices" | "time") => of.reduce((sum, one) => sum + one[what], 0);
    return {
      lanes: rows,
      time: total(rows, "time"),
      slices: total(rows, "slices"),
      kinds: [...kinds].sort((a, b) => b[1].time - a[1].time).map(([kind, one]) => ({ kind: held.said[0]!.categories[kind] ?? "", ...one })),
      names: byTime.slice(0, NAMED).map(([name, one]) => ({ name: held.names[name]!, ...one })),
      more: { names: rest.length, slices: total(rest.map(([, one]) => one), "slices"), time: total(rest.map(([, one]) => one), "time") },
    };
  }
}

function read(buffer: ArrayBuffer): Held {
  const reader = new Reader(buffer);
  const head = reader.head as Head & { said: Said[]; names: string[]; left: { slices: number; time: number } };
  const strips = new Map<string, Strip[]>();
  for (const lane of head.lanes) {
    strips.set(
      lane.id,
      lane.strips.map(({ many, wide }) => ({
        start: wide ? reader.f64(many) : reader.i32(many),
        lasted: wide ? reader.f64(many) : reader.i32(many),
        name: reader.u32(many),
        kind: reader.u8(many),
        many,
      })),
    );
  }
  const place = new Map([...strips.keys()].map((id, number) => [id, number]));
  return { base: BigInt(head.start), said: head.said, names: head.names, left: head.left, strips, place };
}

function count(sums: Map<number, { slices: number; time: number }>, key: number, time: number): void {
  const one = sums.get(key) ?? { slices: 0, time: 0 };
  one.slices += 1;
  one.time += time;
  sums.set(key, one);
}
