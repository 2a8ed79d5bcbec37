// The rows of a table, fetched in pages as they come into sight; a page out of sight is no longer awaited.
import { useEffect, useMemo, useReducer, useRef } from "preact/hooks";
import type { Params, Source } from "../source";
import { ask, keyOf, wordsFor } from "./answer";
import type { LeftOut } from "./left_out";

export interface TableColumn {
  name: string;
  unit: string;
  meaning: string;
  kind: "text" | "number" | "yes/no" | "list";
  /** What it is called in this run, if that is not its name. */
  heading?: string | null;
  /** Not `false`: it has a value in some row, and is of something that this run had. */
  fits?: boolean;
}

/** An answer of the question `table`. */
export interface TablePage {
  name: string;
  title: string;
  /** What a row is. */
  row: string;
  /** Why there are no rows, if there are none. */
  empty: string;
  columns: TableColumn[];
  shown: string[];
  total: number;
  matching: number;
  sums: Record<string, number | string | null>;
  sums_all: Record<string, number | string | null>;
  from: number;
  values: Record<string, unknown[]>;
  /** By column what opscope's own texts are in the words of the vendor of the devices. */
  words?: Record<string, Record<string, string>>;
  /** Of a single file: the rows of the table that it does not hold. */
  left_out?: LeftOut;
}

export type Row = Record<string, unknown>;

/** Rows of a request while scrolling. */
const PAGE = 200;
/** Pages that are kept in memory. */
const KEPT = 60;

/** The pages of one table, sorted and filtered in one way. */
export class Rows {
  first: TablePage | undefined;
  error: string | undefined;
  private pages = new Map<number, TablePage>();
  private pending = new Map<number, AbortController>();

  constructor(
    readonly key: string,
    private source: Source,
    private params: Params,
    private changed: () => void,
  ) {}

  get matching(): number {
    return this.first?.matching ?? 0;
  }

  /** Row `index` of the matching ones; undefined while it is on its way. */
  at(index: number): Row | undefined {
    const page = this.pages.get(Math.floor(index / PAGE));
    if (!page) return undefined;
    const place = index % PAGE;
    const row: Row = {};
    for (const { name } of page.columns) {
      const value = page.values[name]?.[place];
      row[name] = (typeof value === "string" && page.words?.[name]?.[value]) || value;
    }
    return row;
  }

  /** Fetches the pages of these rows, and gives up those that are no longer in sight. */
  need(from: number, to: number): void {
    const [low, high] = [Math.floor(from / PAGE), Math.floor(Math.max(from, to - 1) / PAGE)];
    for (const [page, abort] of this.pending) {
      if (page !== 0 && (page < low - 1 || page > high + 1)) {
        abort.abort();
        this.pending.delete(page);
      }
    }
    for (let page = low; page <= high; page++) this.fetch(page);
  }

  private fetch(page: number): void {
    if (this.pages.has(page) || this.pending.has(page) || this.error !== undefined) return;
    const abort = new AbortController();
    this.pending.set(page, abort);
    ask<TablePage>(this.source, "table", { ...this.params, from: page * PAGE, rows: PAGE }, abort.signal).then(
      (answer) => {
        if (abort.signal.aborted) return;
        this.pending.delete(page);
        this.pages.set(page, answer);
        this.first ??= answer;
        if (this.pages.size > KEPT) this.pages.delete(this.pages.keys().next().value!);
        this.changed();
      },
      (failure) => {
        if (abort.signal.aborted) return;
        this.pending.delete(page);
        this.error = wordsFor(failure);
        this.changed();
      },
    );
  }

  end(): void {
    for (const abort of this.pending.values()) abort.abort();
    this.pending.clear();
  }
}

export interface Shown {
  rows: Rows;
  /** The rows are those of the question before. */
  stale: boolean;
  again: () => void;
}

/** The rows for these parameters; until their first page is there, the rows before. */
export function useRows(source: Source, params: Params): Shown {
  const [turn, changed] = useReducer((count: number) => count + 1, 0);
  const [attempt, again] = useReducer((count: number) => count + 1, 0);
  const key = keyOf("table", params);
  const current = useMemo(() => new Rows(key, source, params, () => changed(undefined)), [source, key, attempt]);
  const last = useRef<Rows>(current);
  useEffect(() => {
    current.need(0, 1);
    return () => current.end();
  }, [current]);
  if (current.first || current.error !== undefined) last.current = current;
  void turn;
  const before = last.current !== current && last.current.first?.name === params["name"];
  return { rows: before ? last.current : current, stale: last.current !== current, again: () => again(undefined) };
}

/** Every matching row, page by page; `progress` is told how many there are so far. */
export async function allRows(source: Source, params: Params, most: number, progress: (done: number, of: number) => void, signal: AbortSignal): Promise<{ page: TablePage; rows: Row[] }> {
  const rows: Row[] = [];
  let page: TablePage;
  do {
    page = await source.ask<TablePage>("table", { ...params, from: rows.length, rows: 1_000 }, signal);
    const names = page.columns.map((column) => column.name);
    const count = page.values[names[0] ?? ""]?.length ?? 0;
    if (count === 0) break;
    for (let place = 0; place < count; place++) {
      rows.push(Object.fromEntries(names.map((name) => [name, page.values[name]![place]])));
    }
    progress(rows.length, page.matching);
  } while (rows.length < Math.min(page.matching, most));
  return { page, rows: rows.slice(0, most) };
}
