// A page that is one file: answers come from the data embedded in it, unpacked when they are asked for.
import { type Axis, readAxes } from "./axes";
import { NoColumn, type Held, rowsOf, unpack } from "./packed";
import type { LeftOut } from "./parts/left_out";
import { type Params, Refused, type Source } from "./source";
import { eventsOf, readSlices, type Slices, wholeTimeline } from "./whole_timeline";

/** What a file holds, by question; every `block` is the id of an element with its bytes. */
interface Index {
  tables: Record<string, { block: string; page: TablePage; left_out?: LeftOut; axes?: boolean }>;
  answers: { question: string; params: Record<string, string>; block: string }[];
  /** Of a file that has every op, kernel and slice: the blocks of their times and of the timeline. */
  axes?: string;
  timeline?: string;
}

interface TablePage {
  columns: { name: string }[];
  sums_all: Record<string, unknown>;
  total: number;
  [key: string]: unknown;
}

const INDEX = "index";
const ROWS = 1_000;
/** What only a server can change; a file was written with its choice. */
const FIXED = new Set(["steps", "device", "rank"]);

/** Whether this page holds its own data. */
export function embedded(): boolean {
  return document.getElementById(`opscope-${INDEX}`) !== null;
}

export class FileSource implements Source {
  live = false;
  private index: Promise<Index> | undefined;
  private answers = new Map<string, string>();
  private tables = new Map<string, Promise<Held>>();
  private times: Promise<{ slices: Slices; axes: Axis[] } | null> | undefined;

  /** `text`: the base64 text of a block by its id; null if there is no such block. */
  constructor(private text: (id: string) => string | null = (id) => document.getElementById(id)?.textContent ?? null) {}

  async ask<T>(question: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
    if (question === "table") return (await this.table(params, signal)) as T;
    const bytes = await this.answer(question, params, signal);
    return JSON.parse(new TextDecoder().decode(bytes)) as T;
  }

  async bytes(question: string, params: Params = {}, signal?: AbortSignal): Promise<ArrayBuffer> {
    const times = question === "timeline_all" ? await this.timesOf(await this.read()) : null;
    signal?.throwIfAborted();
    if (times) return wholeTimeline(times.slices, times.axes);
    const bytes = await this.answer(question, params, signal);
    return bytes.slice().buffer as ArrayBuffer;
  }

  private async answer(question: string, params: Params, signal?: AbortSignal): Promise<Uint8Array> {
    await this.read();
    const found = this.answers.get(keyOf(question, params));
    if (found === undefined) {
      throw new Refused(404, `This file does not hold the answer to this (${question}). "opscope view" with the profile does.`);
    }
    const bytes = await this.block(found);
    signal?.throwIfAborted();
    return bytes;
  }

  async held(name: string): Promise<{ table: Held; cut: boolean } | null> {
    const index = await this.read();
    const found = Object.hasOwn(index.tables, name) ? index.tables[name] : undefined;
    return found ? { table: await this.tableOf(index, name), cut: found.left_out !== undefined } : null;
  }

  private async table(params: Params, signal?: AbortSignal): Promise<unknown> {
    const index = await this.read();
    const name = String(params.name ?? "");
    const found = Object.hasOwn(index.tables, name) ? index.tables[name] : undefined;
    if (found === undefined) throw new Refused(404, `This file has no table ${name}.`);
    const table = await this.tableOf(index, name);
    signal?.throwIfAborted();
    const from = whole(params.from, 0, Number.MAX_SAFE_INTEGER, "from");
    const many = whole(params.rows, 100, ROWS, "rows");
    let rows: Uint32Array;
    try {
      rows = rowsOf(table, {
        q: params.q === undefined ? undefined : String(params.q),
        within: params.in === undefined ? undefined : String(params.in),
        where: whereOf(params.where),
        sort: params.sort === undefined ? undefined : String(params.sort),
      });
    } catch (error) {
      if (error instanceof NoColumn) throw new Refused(400, error.message);
      throw error;
    }
    const sums: Record<string, unknown> = {};
    for (const column of Object.keys(found.page.sums_all)) {
      const all = rows.length === table.rows && !found.left_out;
      sums[column] = all ? found.page.sums_all[column] : (table.columns.get(column)?.sum(rows) ?? null);
    }
    const shown = rows.subarray(from, from + many);
    const values: Record<string, unknown[]> = {};
    for (const { name: column } of found.page.columns) {
      const one = table.columns.get(column);
      values[column] = Array.from(shown, (row) => one?.value(row) ?? null);
    }
    const page = { ...found.page, matching: rows.length, sums, from, values };
    return found.left_out ? { ...page, left_out: found.left_out } : page;
  }

  /** A table whole; it is unpacked once. */
  private tableOf(index: Index, name: string): Promise<Held> {
    let held = this.tables.get(name);
    if (held === undefined) {
      held = this.unpacked(index, name);
      this.tables.set(name, held);
    }
    return held;
  }

  private async unpacked(index: Index, name: string): Promise<Held> {
    const found = index.tables[name];
    if (found === undefined) throw new Refused(404, `This file has no table ${name}.`);
    const bytes = await this.block(found.block);
    const times = found.axes ? await this.timesOf(index) : null;
    if (times === null) return unpack(bytes);
    // what ops launched is added up from these tables
    const launched = name === "each_op"
      ? { kernels: await this.tableOf(index, "each_kernel"), copies: await this.tableOf(index, "each_copy") }
      : undefined;
    return unpack(bytes, { axes: times.axes, launched });
  }

  private timesOf(index: Index): Promise<{ slices: Slices; axes: Axis[] } | null> {
    this.times ??= this.readTimes(index);
    return this.times;
  }

  private async readTimes({ axes, timeline }: Index): Promise<{ slices: Slices; axes: Axis[] } | null> {
    if (axes === undefined || timeline === undefined) return null;
    const slices = readSlices(await this.block(timeline));
    return { slices, axes: readAxes(await this.block(axes), (sizes) => eventsOf(slices, sizes)) };
  }

  private read(): Promise<Index> {
    this.index ??= this.block(INDEX).then((bytes) => {
      const index = JSON.parse(new TextDecoder().decode(bytes)) as Index;
      for (const one of index.answers) this.answers.set(keyOf(one.question, one.params), one.block);
      return index;
    });
    return this.index;
  }

  private async block(id: string): Promise<Uint8Array> {
    const text = this.text(`opscope-${id}`);
    if (text === null) throw new Refused(404, "This file is damaged: a part of its data is missing.");
    return unzip(text);
  }
}

/** A question with its parameters, but those that are fixed in a file. */
function keyOf(question: string, params: Params): string {
  const given = Object.entries(params)
    .filter(([key, value]) => value !== undefined && !FIXED.has(key))
    .map(([key, value]) => [key, String(value)] as const)
    .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return JSON.stringify([question, given]);
}

function whole(value: Params[string], otherwise: number, most: number, name: string): number {
  if (value === undefined) return otherwise;
  const number = Number(value);
  if (!Number.isInteger(number) || number < 0 || number > most) {
    throw new Refused(400, `${name} is ${value}; it must be from 0 to ${most}`);
  }
  return number;
}

function whereOf(value: Params[string]): Record<string, null> | undefined {
  if (value === undefined || value === "") return undefined;
  try {
    const found: unknown = JSON.parse(String(value));
    if (found !== null && typeof found === "object" && !Array.isArray(found)) return found as Record<string, null>;
  } catch {
    // said below
  }
  throw new Refused(400, "where must be a JSON object: column to value");
}

/** Bytes from base64 text of gzip. */
async function unzip(text: string): Promise<Uint8Array> {
  if (typeof DecompressionStream === "undefined") {
    throw new Refused(500, "This browser is too old to unpack the file: it lacks DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 have it).");
  }
  const packed = Uint8Array.from(atob(text.trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
