// What the page works out, so that the file need not hold it: the same sums as opscope/viewer/op_guesses.py.
import { filled } from "./axes";
import type { Held } from "./packed";

/** The columns of a table that were read so far, in the order in which they are stored. */
export interface Before {
  rows: number;
  number(name: string, row: number): number | null;
  /** end - start. */
  length(): Float64Array;
}

/** The tables of what ops launched. */
export interface Launched {
  kernels: Held;
  copies: Held;
}

export function guess(called: string, before: Before, launched: Launched | undefined): Float64Array {
  switch (called) {
    case "length":
      return before.length();
    case "own_time":
      return ownTime(before);
    case "launched_time":
      return below(before, [table(launched?.kernels), table(launched?.copies)], true);
    case "launched_kernels":
      return below(before, [table(launched?.kernels)], false);
  }
  throw new RangeError(`the file has a column that this page cannot work out: ${called}`);
}

function table(held: Held | undefined): Held {
  if (held === undefined) throw new RangeError("a table needs another one that is not there");
  return held;
}

function rowsById(before: Before): Map<number, number> {
  const rows = new Map<number, number>();
  for (let row = 0; row < before.rows; row++) rows.set(before.number("op_id", row)!, row);
  return rows;
}

function parents(before: Before, rows: Map<number, number>): Int32Array {
  return filled(new Int32Array(before.rows), (row) => {
    const parent = before.number("parent_id", row);
    return parent === null ? -1 : (rows.get(parent) ?? -1);
  });
}

/** Each op's time without that of the ops right in it. */
function ownTime(before: Before): Float64Array {
  const parent = parents(before, rowsById(before));
  const time = filled(new Float64Array(before.rows), (row) => before.number("cpu_time", row) ?? 0);
  const own = time.slice();
  for (let row = 0; row < before.rows; row++) if (parent[row]! >= 0) own[parent[row]!]! -= time[row]!;
  return own;
}

/** What an op and those in it launched: its time, or how many there are. */
function below(before: Before, tables: Held[], timed: boolean): Float64Array {
  const rows = rowsById(before);
  const sums = new Float64Array(before.rows);
  for (const held of tables) {
    const op = held.columns.get("op_id")!;
    const duration = held.columns.get("duration")!;
    for (let row = 0; row < held.rows; row++) {
      const at = op.known(row) ? rows.get(op.value(row) as number) : undefined;
      if (at !== undefined) sums[at]! += timed ? Number(duration.value(row) ?? 0) : 1;
    }
  }
  const parent = parents(before, rows);
  const byDepth: number[][] = [];
  for (let row = 0; row < before.rows; row++) (byDepth[before.number("depth", row)!] ??= []).push(row);
  for (const level of byDepth.reverse()) {
    for (const row of level ?? []) if (parent[row]! >= 0) sums[parent[row]!]! += sums[row]!;
  }
  return sums;
}
