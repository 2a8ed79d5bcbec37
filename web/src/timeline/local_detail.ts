// What a page without a server knows of a slice: its row in the file's tables, as timeline/detail.py tells it.
import type { Column, Held as Table } from "../packed";
import type { Flow, LaneSaid, SliceAt } from "./data";
import { since, type Strip } from "./local_picture";

/** The columns that are told of kernels, copies and ops, as in opscope/viewer/timeline/detail.py. */
const OF_KERNELS = [
  ..."op op_type direction layer step range source inputs outputs dtypes params flops bytes tensor_core tc_reason".split(" "),
  ..."reason grid block registers shared_memory correlation graph".split(" "),
];
const OF_COPIES = "op direction layer step range source src_kind dst_kind peer bytes reason correlation".split(" ");
const OF_OPS = "op op_type direction layer step range source inputs outputs dtypes params flops bytes self_time device_time kernels reason".split(" ");
/** So many flows of a slice are drawn. */
const FLOWS = 200;
const GONE = "This file does not hold the row of this slice; opscope view with the profile tells its op, layer and shapes, and what launched what.";
const FEWER = "Rows of ops, kernels or copies were left out of this file: there may be more ties.";

/** A table of the file, and whether rows of it were left out. */
export interface Part {
  table: Table;
  cut: boolean;
}

export interface Told {
  told: Record<string, unknown>;
  flows: Flow[];
  more: number;
  /** The whole name, of which the arrays have 200 characters. */
  name?: string;
  note?: string;
}

/** A slice as it is looked for: times in ns on the trace's clock. */
export interface Wanted {
  lane: LaneSaid;
  name: string;
  start: bigint;
  end: bigint;
}

export interface Places {
  base: bigint;
  lanes: LaneSaid[];
  strips: Map<string, Strip[]>;
  names: string[];
}

type Get = (name: string) => Promise<Part | null>;
interface Tie {
  what: string;
  lanes: LaneSaid[];
  start: bigint;
  end: bigint;
  name?: string;
}

/** Looks for what is known of a slice. */
export async function toldOf(wanted: Wanted, get: Get, places: Places): Promise<Told> {
  const [ops, kernels, copies] = await Promise.all(["each_op", "each_kernel", "each_copy"].map(get));
  const { lane, start, end } = wanted;
  const on = { process: lane.process, device: deviceOf(lane), stream: lane.stream };
  const same = { start, end };
  const cut = (...parts: (Part | null | undefined)[]) => (parts.some((one) => !one || one.cut) ? FEWER : undefined);
  let ties: Tie[] = [];
  if (lane.kind === "stream") {
    let [copy, held, row] = [false, kernels, one(kernels, { ...on, ...same, name: wanted.name })];
    if (row < 0) [copy, held, row] = [true, copies, one(copies, { ...on, ...same, kind: wanted.name })];
    if (row < 0) return { told: {}, flows: [], more: 0, note: GONE };
    const { table } = held!;
    const told = rowOf(table, row, copy ? OF_COPIES : OF_KERNELS);
    const call = [whole(table, "call_start", row), whole(table, "call_end", row)];
    if (call[0] !== null) told["launched_before"] = Number(start - call[0]!);
    if (call[0] !== null && call[1] !== null) ties.push({ what: "call", lanes: of(places, "calls", lane), start: call[0]!, end: call[1]! });
    const id = table.columns.get("op_id")?.value(row) ?? null;
    const op = id === null ? -1 : one(ops, { op_id: id });
    if (op >= 0) ties.push(tieOfOp(ops!.table, op, places, lane));
    const name = String(table.columns.get(copy ? "kind" : "name")?.value(row) ?? wanted.name);
    return { name, told, ...located(ties, places), note: id !== null && op < 0 ? FEWER : undefined };
  }
  if (lane.kind === "calls") {
    ties = launched({ process: lane.process, call_start: start, call_end: end }, null, kernels, copies, places);
    return { told: {}, ...located(ties, places), note: cut(kernels, copies) };
  }
  const row = one(ops, { process: lane.process, thread: lane.thread, ...same, op: wanted.name });
  if (row < 0) return { told: {}, flows: [], more: 0, note: lane.kind === "thread" && ops?.cut ? GONE : undefined };
  const { table } = ops!;
  const inside = new Set<unknown>();
  const fits = matching(table, { process: lane.process, thread: lane.thread });
  for (let other = 0; other < table.rows; other++) {
    if (fits(other) && whole(table, "start", other)! >= start && whole(table, "end", other)! <= end) inside.add(table.columns.get("op_id")?.value(other));
  }
  ties = launched({ process: lane.process }, inside, kernels, copies, places);
  return { told: rowOf(table, row, OF_OPS), ...located(ties, places), note: cut(ops, kernels, copies) };
}

/** The device of a lane as tables have it: null where it is not known. */
function deviceOf(lane: LaneSaid): number | null {
  return lane.device !== null && lane.device >= 0 ? lane.device : null;
}

function tieOfOp(table: Table, row: number, places: Places, lane: LaneSaid): Tie {
  const thread = table.columns.get("thread")?.value(row) ?? null;
  return {
    what: "op",
    lanes: of(places, "thread", lane).filter((one) => one.thread === thread),
    start: whole(table, "start", row)!,
    end: whole(table, "end", row)!,
    name: String(table.columns.get("op")?.value(row)),
  };
}

/** The kernels and copies with these values, and with an op among `ops` if it is given. */
function launched(values: Record<string, unknown>, ops: Set<unknown> | null, kernels: Part | null | undefined, copies: Part | null | undefined, places: Places): Tie[] {
  const found: Tie[] = [];
  for (const [what, part, name] of [["kernel", kernels, "name"], ["copy", copies, "kind"]] as const) {
    if (!part) continue;
    const { table } = part;
    const fits = matching(table, values);
    for (let row = 0; row < table.rows; row++) {
      if (!fits(row) || (ops && !ops.has(table.columns.get("op_id")?.value(row) ?? undefined))) continue;
      const [device, stream] = ["device", "stream"].map((column) => table.columns.get(column)?.value(row) ?? null);
      found.push({
        what,
        lanes: places.lanes.filter((one) => one.kind === "stream" && one.process === values["process"] && deviceOf(one) === device && one.stream === stream),
        start: whole(table, "start", row)!,
        end: whole(table, "end", row)!,
        name: String(table.columns.get(name)?.value(row)),
      });
    }
  }
  return found;
}

function of(places: Places, kind: string, lane: LaneSaid): LaneSaid[] {
  return places.lanes.filter((one) => one.kind === kind && one.process === lane.process);
}

function located(ties: Tie[], places: Places): { flows: Flow[]; more: number } {
  const flows = ties.slice(0, FLOWS).map((one) => slice(one, places)).filter((one) => one !== null);
  return { flows, more: Math.max(0, ties.length - FLOWS) };
}

/** Where a slice with these times and this name is; null if the file does not hold it. */
function slice(tie: Tie, places: Places): Flow | null {
  const start = Number(tie.start - places.base);
  const lasted = Number(tie.end - tie.start);
  for (const lane of tie.lanes) {
    for (const [level, strip] of (places.strips.get(lane.id) ?? []).entries()) {
      for (let index = since(strip, start); index < strip.many && strip.start[index] === start; index++) {
        const name = places.names[strip.name[index]!]!;
        if (strip.lasted[index] !== lasted || (tie.name !== undefined && !same(name, tie.name))) continue;
        const at: SliceAt = { lane: lane.id, level, index };
        return { ...at, what: tie.what, name, start: String(tie.start), end: String(tie.end) };
      }
    }
  }
  return null;
}

/** Names of slices are cut to 200 characters, and a kernel without a name has a word in its place. */
function same(name: string, whole: string): boolean {
  return name === whole.slice(0, 200) || (whole === "null" && name.startsWith("("));
}

/** The first row with these values; -1 if there is none. Texts are compared as far as names of slices go. */
function one(part: Part | null | undefined, values: Record<string, unknown>): number {
  if (!part) return -1;
  const { name, kind, op, ...rest } = values;
  const texts = Object.entries({ name, kind, op }).filter(([, value]) => value !== undefined);
  const fits = matching(part.table, rest);
  for (let row = 0; row < part.table.rows; row++) {
    if (fits(row) && texts.every(([column, value]) => same(String(value), String(part.table.columns.get(column)?.value(row) ?? null)))) return row;
  }
  return -1;
}

function matching(table: Table, values: Record<string, unknown>): (row: number) => boolean {
  const tests = Object.entries(values).map(([column, value]) => {
    const held = table.columns.get(column);
    const plain = typeof value === "bigint" ? String(value) : value;
    return held ? held.is((plain ?? null) as Parameters<Column["is"]>[0]) : () => plain === undefined || plain === null;
  });
  return (row) => tests.every((test) => test(row));
}

function whole(table: Table, column: string, row: number): bigint | null {
  const value = table.columns.get(column)?.value(row) ?? null;
  return value === null ? null : BigInt(value as number | string);
}

function rowOf(table: Table, row: number, wanted: string[]): Record<string, unknown> {
  const told = wanted.map((column) => [column, table.columns.get(column)?.value(row) ?? null] as const);
  return Object.fromEntries(told.filter(([, value]) => value !== null));
}
