// A whole table at once, for charts: its columns, fetched in pages, up to a bound that the page then says.
import type { Params, Source } from "../source";
import { selection } from "../state";
import { type Answered, ask, keyOf, useAsked } from "./answer";
import { numeric } from "./format";
import type { TablePage } from "./rows";

const PAGE = 1_000;

export class Whole {
  constructor(
    /** The first page, with the table's words and sums. */
    readonly page: TablePage,
    /** Rows that are here; there may be more (`page.total`). */
    readonly many: number,
    private readonly values: Record<string, unknown[]>,
  ) {}

  get complete(): boolean {
    return this.many >= this.page.total;
  }

  of(column: string): unknown[] {
    return this.values[column] ?? [];
  }

  text(column: string, row: number): string | null {
    const value = this.values[column]?.[row];
    return value === null || value === undefined ? null : String(value);
  }

  number(column: string, row: number): number | null {
    return numeric(this.values[column]?.[row]);
  }

  numbers(column: string): (number | null)[] {
    return this.of(column).map(numeric);
  }
}

/** Times in ns from `start`, exact also where they are beyond 2^53 and came as text. */
export function offsets(values: unknown[], start: unknown): (number | null)[] {
  const from = integer(start) ?? 0n;
  return values.map((value) => {
    const at = integer(value);
    return at === null ? null : Number(at - from);
  });
}

export function integer(value: unknown): bigint | null {
  if (typeof value === "bigint") return value;
  if (typeof value === "number") return Number.isFinite(value) ? BigInt(Math.round(value)) : null;
  return typeof value === "string" && /^-?\d+$/.test(value) ? BigInt(value) : null;
}

export async function whole(source: Source, params: Params, most: number, signal?: AbortSignal): Promise<Whole> {
  let first: TablePage | undefined;
  const values: Record<string, unknown[]> = {};
  let many = 0;
  for (;;) {
    const rows = Math.min(PAGE, most - many);
    const page: TablePage = await ask<TablePage>(source, "table", { ...params, from: many, rows }, signal);
    first ??= page;
    let got = 0;
    for (const column of page.columns) {
      const more = page.values[column.name] ?? [];
      got = Math.max(got, more.length);
      (values[column.name] ??= []).push(...more);
    }
    many += got;
    if (!got || many >= Math.min(page.matching, most)) return new Whole(first, many, values);
  }
}

/** The table of a report, or as many rows as `most`; null asks for none. */
export function useWhole(source: Source, name: string | null, params: Params = {}, most = 2_000): Answered<Whole> {
  const given: Params = { ...selection(), ...params, name: name ?? "" };
  const key = name === null ? null : keyOf("table", { ...given, most });
  return useAsked(source, key, (signal) => whole(source, given, most, signal));
}
