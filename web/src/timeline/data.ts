// What the timeline asks, of the server or of the file that the page is.
import type { Params, Source } from "../source";
import { selection } from "../state";
import { LocalTimeline } from "./local";
import { type CurvePicture, type Picture, readCurves, readPicture } from "./wire";

export interface LaneSaid {
  id: string;
  kind: "steps" | "thread" | "python" | "calls" | "stream";
  process: number;
  /** What the lane is of; null where it has none. */
  thread: number | null;
  device: number | null;
  stream: number | null;
  group: string;
  title: string;
  levels: number;
  slices: number;
  left: number;
}

export interface Said {
  span: [string, string] | null;
  /** From the first step's start to the last one's end; null without steps. */
  steps?: [string, string] | null;
  categories: string[];
  lanes: LaneSaid[];
  /** The lanes are not made yet: the server knew them, and the first picture, from an earlier look. */
  kept?: boolean;
  /** Kernels have the categories of their names until `settled`: their ops are not known yet. */
  provisional?: boolean;
}

export interface SliceAt {
  lane: string;
  level: number;
  index: number;
}

export interface Flow extends SliceAt {
  what: string;
  name: string;
  start: string;
  end: string;
}

/** What is one level deeper than a slice. Times are ns; null where there is too much to add up. */
export interface Inside {
  slices: number;
  time: number | null;
  self_time: number | null;
  names: { name: string; slices: number; time: number }[];
}

/** What a kernel waited for from its launch on, in ns. */
export interface Waited {
  behind: string | null;
  behind_time: number;
  launch_time: number;
  /** How long the stream ran nothing before; null of its first kernel. */
  idle_before: number | null;
}

export interface Detail extends SliceAt {
  inside?: Inside | null;
  waited?: Waited | null;
  name: string;
  kind: string;
  where: string;
  start: string;
  end: string;
  time: number;
  told: Record<string, unknown>;
  flows: Flow[];
  more: number;
  /** What a file does not hold. */
  note?: string;
}

export interface Found {
  total: number;
  number?: number;
  found: (SliceAt & { start: string; end: string; name: string }) | null;
}

export interface Sums {
  lanes: { lane: string; slices: number; time: number; busy: number }[];
  time: number;
  slices: number;
  kinds: { kind: string; slices: number; time: number }[];
  names: { name: string; slices: number; time: number }[];
  more: { names: number; slices: number; time: number };
}

export interface Timeline {
  /** What the timeline does not show, in words; "" if it shows everything. */
  left(): string;
  /** `made`: only once the lanes are made, so that any window's picture is there at once. */
  lanes(part: "host" | "device", signal?: AbortSignal, made?: boolean): Promise<Said>;
  /** Ends once pictures that are asked for have the categories of the kernels' ops. */
  settled(signal?: AbortSignal): Promise<void>;
  /** `lanes`: ids, each with how many of its strips are wanted (`h1:2`). */
  picture(lanes: string[], start: bigint, end: bigint, columns: number, signal?: AbortSignal): Promise<Picture>;
  curves(of: string, start: bigint, end: bigint, columns: number, signal?: AbortSignal): Promise<CurvePicture>;
  names(ids: number[]): Promise<Map<number, string>>;
  /** `brief`: its name and times alone, for a hint. */
  detail(at: SliceAt, brief?: boolean): Promise<Detail>;
  /** `exact`: the name is the text, and does not only contain it. */
  find(text: string, from: bigint, back: boolean, after: SliceAt | null, signal?: AbortSignal, exact?: boolean): Promise<Found>;
  sums(start: bigint, end: bigint, lanes: string[], signal?: AbortSignal): Promise<Sums>;
}

/** Asks the server. */
class Asked implements Timeline {
  constructor(private readonly source: Source) {}

  left(): string {
    return "";
  }
  lanes(part: "host" | "device", signal?: AbortSignal, made?: boolean): Promise<Said> {
    return this.source.ask<Said>("timeline_lanes", given({ part, made: made ? 1 : undefined }), signal);
  }
  async settled(signal?: AbortSignal): Promise<void> {
    await this.source.ask("timeline_settled", given({}), signal);
  }
  async picture(lanes: string[], start: bigint, end: bigint, columns: number, signal?: AbortSignal): Promise<Picture> {
    const params = { lanes: lanes.join(","), start: String(start), end: String(end), columns };
    return readPicture(await this.source.bytes("timeline", given(params), signal));
  }
  async curves(of: string, start: bigint, end: bigint, columns: number, signal?: AbortSignal): Promise<CurvePicture> {
    const params = { of, start: String(start), end: String(end), columns };
    return readCurves(await this.source.bytes("timeline_curves", given(params), signal));
  }
  async names(ids: number[]): Promise<Map<number, string>> {
    const found = await this.source.ask<Record<string, string>>("timeline_names", given({ ids: ids.join(",") }));
    return new Map(Object.entries(found).map(([id, name]) => [Number(id), name]));
  }
  detail(at: SliceAt, brief = false): Promise<Detail> {
    return this.source.ask<Detail>("timeline_slice", given({ lane: at.lane, level: at.level, index: at.index, brief: brief ? 1 : undefined }));
  }
  find(text: string, from: bigint, back: boolean, after: SliceAt | null, signal?: AbortSignal, exact = false): Promise<Found> {
    const params = {
      text,
      from: String(from),
      back: back ? "1" : undefined,
      exact: exact ? "1" : undefined,
      after: after ? `${after.lane}:${after.level}:${after.index}` : undefined,
    };
    return this.source.ask<Found>("timeline_find", given(params), signal);
  }
  sums(start: bigint, end: bigint, lanes: string[], signal?: AbortSignal): Promise<Sums> {
    const params = { start: String(start), end: String(end), lanes: lanes.join(",") };
    return this.source.ask<Sums>("timeline_sum", given(params), signal);
  }
}

function given(params: Params): Params {
  return { ...selection(), ...params };
}

/** The timeline of what is selected. */
export function timelineOf(source: Source): Timeline {
  return source.live ? new Asked(source) : new LocalTimeline(source.bytes("timeline_all"), async (name) => (await source.held?.(name)) ?? null);
}
