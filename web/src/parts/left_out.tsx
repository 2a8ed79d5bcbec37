// What a single file left out of a table to stay small, with its sum: no search finds it there.
import { show } from "./format";
import type { TablePage } from "./rows";

/** Rows that a single file left out, and the sums of their columns that add up. */
export interface LeftOut {
  rows: number;
  sums: Record<string, number | string | null>;
}

export function LeftOutRows({ page }: { page: TablePage }) {
  const left = page.left_out;
  if (!left) return null;
  const number = (count: number) => count.toLocaleString("en");
  const summed = page.columns.filter((column) => left.sums[column.name] != null && (column.unit === "ns" || column.unit === "bytes"));
  const sum = summed.find((column) => page.shown.includes(column.name)) ?? summed[0];
  const of = sum ? `, ${show(left.sums[sum.name], sum.unit)} of ${show(page.sums_all[sum.name], sum.unit)} ${sum.name.replace(/_/g, " ")}` : "";
  return (
    <p class="left-out" role="note">
      This file has the first {number(page.total - left.rows)} of {number(page.total)} rows. {number(left.rows)} are not in
      it{of}: no search finds them here, and sums are of the rows that are here. “opscope view” shows all.
    </p>
  );
}
