// Which columns a table shows, how wide, and how a cell reads.
import { isPoint, showIn, words } from "./format";
import type { Row, TableColumn, TablePage } from "./rows";

/** Columns that name a row: the first of them stays in sight. */
const NAMES = new Set("op name module layer source range frame kernel region what reason finding step rank".split(" "));
/** Width of a character and of a cell's margins, in px at the page's font. */
const CHARACTER = 7.3;
/** The same of a heading, which is bold. */
const BOLD = 8;
const MARGIN = 17;
const WIDEST_TEXT = 46;

export interface Placed extends Omit<TableColumn, "heading"> {
  heading: string;
  right: boolean;
  /** In px. */
  width: number;
}

/** Whether a column holds quantities: then null is a quantity that is not known. */
export function isQuantity(column: TableColumn): boolean {
  return column.kind === "number" && column.unit !== "number";
}

/** Columns that say nothing of this run: no row has a value, or they are of a device that it did not have. */
export function unfit(page: TablePage): Set<string> {
  return new Set(page.columns.filter((column) => column.fits === false).map((column) => column.name));
}

/** The columns to draw: those chosen, else those the report shows, with the row's name first. */
export function chosenColumns(page: TablePage, chosen: readonly string[] | undefined, leading: boolean): TableColumn[] {
  const known = new Map(page.columns.map((column) => [column.name, column]));
  const names = (chosen ?? (page.shown.length ? page.shown : page.columns.map((column) => column.name))).filter((name) => known.has(name));
  if (leading) {
    const first = names.find((name) => NAMES.has(name));
    if (first) names.unshift(...names.splice(names.indexOf(first), 1));
  }
  return names.map((name) => known.get(name)!);
}

/** Gives each column a width in px that fits the rows of `page` and its heading, in `room` px. */
export function placed(columns: TableColumn[], page: TablePage, start: number | string | null, room: number, short: (name: string) => string = (name) => name): Placed[] {
  const narrow = room < 600;
  const made = columns.map((column, index) => {
    const heading = column.heading ?? words(column.name);
    const text = column.kind === "text" || column.kind === "list";
    const values = (page.values[column.name] ?? []).slice(0, 200);
    const sample = placeOf(page.name, column.name) === "kernel" ? values.map((value) => (typeof value === "string" ? short(value) : value)) : values;
    const sum = (lengthOf(column, page.sums[column.name], start) * BOLD) / CHARACTER;
    const widest = Math.max(4, sum, ...sample.map((value) => lengthOf(column, value, start)));
    const most = !text ? 60 : narrow ? (index === 0 ? 19 : 30) : WIDEST_TEXT;
    const swatch = column.name === "kind" || column.name === "op_type" ? 16 : 0;
    const bar = column.name === "share" ? 104 : 0;
    const width = Math.max(bar, Math.round(Math.max(Math.min(widest, most) * CHARACTER, twoLines(heading) * BOLD + 8)) + MARGIN + swatch);
    const wish = text && !narrow ? Math.round(widest * CHARACTER) + MARGIN + swatch : width;
    return { ...column, heading, right: !text && column.kind !== "yes/no", width, wish: Math.max(width, wish) };
  });
  // Room that is left goes to texts that are cut, the same to each
  for (let left = room - made.reduce((sum, one) => sum + one.width, 0); left > 0; ) {
    const cut = made.filter((one) => one.width < one.wish);
    if (!cut.length) break;
    const each = Math.max(1, Math.floor(left / cut.length));
    for (const one of cut) {
      const more = Math.min(each, one.wish - one.width, left);
      one.width += more;
      left -= more;
    }
  }
  return made;
}

/** Characters of the longer of two lines of words, split where that is least. */
function twoLines(text: string): number {
  const all = text.split(" ");
  return Math.min(text.length, ...all.map((_, at) => Math.max(all.slice(0, at).join(" ").length, all.slice(at).join(" ").length)));
}

function lengthOf(column: TableColumn, value: unknown, start: number | string | null): number {
  if (value === null || value === undefined) return isQuantity(column) ? 8 : 1;
  const text = showIn(column, value, start);
  // "GFLOP" is wider than five digits, "memory" than six letters
  return text.length + (isQuantity(column) ? 0.3 * text.replace(/[^A-Z]/g, "").length : 0.7 * text.replace(/[^mwMW]/g, "").length);
}

/** Why a value is unknown: what the row says, else when its column has none. */
export function unknownBecause(column: TableColumn, row: Row): string | null {
  const said = whyUnknown(column, row);
  if (said !== null) return said;
  const clause = /\b(?:null|unknown) ((?:if|for|where|without|when|while|unless|of|in|as) [^;.]*)/.exec(column.meaning);
  return clause ? `it is so ${clause[1]}` : null;
}

/** Whether the row is time of no op: what belongs to an op does not apply to it. */
export function ofNoOp(row: Row): boolean {
  return row["op"] === null && typeof row["reason"] === "string" && row["reason"] !== "";
}

/** Whether a column does not apply to a row: counts of steps to a part of them, Tensor Cores to an op without kernels. */
export function inapplicable(column: TableColumn, row: Row): boolean {
  if (/^(slow_steps|left_out|warm_up_steps)$/.test(column.name)) return typeof row["part"] === "string" && row["part"] !== "step";
  const of = /^tensor_core_(self|total)$/.exec(column.name);
  return of !== null && Number(row[`device_${of[1]}`]) === 0;
}

/** Why a value is unknown, if the row says so. */
export function whyUnknown(column: TableColumn, row: Row): string | null {
  const head = column.name.split("_");
  const tail = head[head.length - 1]!;
  for (const name of [`${column.name}_reason`, `${head[0]}_reason`, `${tail}_reason`, "reason", "why"]) {
    const reason = row[name];
    if (typeof reason === "string" && reason) return reason;
  }
  return null;
}

/** The page that a column's values are names of, if any. */
export function placeOf(table: string, column: string): "op" | "kernel" | "layer" | "source" | "step" | null {
  if (column === "op" || column === "release_op") return "op";
  if (column === "layer" || column === "source") return column;
  if (column === "step") return "step";
  if (column === "kernel") return "kernel";
  if (column === "name" && /^(kernel|occupancy|roofline_kernel|short_|counter)/.test(table)) return "kernel";
  return null;
}

/** The heading's hover text: name, unit, meaning. */
export function titleOf(column: TableColumn): string {
  const unit = column.unit === "text" || column.unit === "yes/no" ? "" : ` (${column.unit}${isPoint(column) ? ", shown from the trace's start" : ""})`;
  return `${column.name}${unit}: ${column.meaning}`;
}
