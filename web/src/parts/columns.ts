// Which columns a table shows, how wide, and how a cell reads.
import { textWidth } from "./canvas";
import { isPoint, shortSource, showIn, UNKNOWN, visible, words } from "./format";
import type { Row, TableColumn, TablePage } from "./rows";

/** Columns that name a row: the first of them stays in sight. */
const NAMES = new Set("op name module layer source range frame kernel region what reason finding step rank".split(" "));
/** A cell's margins, and the most that a text takes at first, in px. */
const MARGIN = 18;
const WIDEST_TEXT = 350;
/** To so little a text gives way where the columns do not fit beside each other. */
const LEAST_TEXT = 150;
/** A bar of a share beside its number, and a link to the line of a source. */
const BAR = 104;
const JUMP = 20;

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
    const swatch = column.name === "kind" || column.name === "op_type" ? 16 : 0;
    const jump = column.name === "source" ? JUMP : 0;
    const total = column.name in page.sums ? textWidth(showIn(column, page.sums[column.name], start), true) : 0;
    const widest = Math.max(total, ...textsOf(column, page, start, short).map((one) => textWidth(one, false))) + jump;
    const most = !text ? 440 : narrow ? (index === 0 ? 139 : 219) : WIDEST_TEXT;
    const width = Math.max(column.name === "share" ? BAR : 30, Math.ceil(Math.max(Math.min(widest, most), twoLines(heading) + 12)) + MARGIN + swatch);
    const wish = text && !narrow ? Math.ceil(widest) + MARGIN + swatch : width;
    return { ...column, heading, right: !text && column.kind !== "yes/no", width, wish: Math.max(width, wish) };
  });
  const left = room - made.reduce((sum, one) => sum + one.width, 0);
  if (left > 0) widen(made, left);
  else narrowed(made, -left);
  return made;
}

/** Gives room that is left to texts that are cut, the same to each. */
function widen(made: { width: number; wish: number }[], room: number): void {
  for (let left = room; left > 0; ) {
    const cut = made.filter((one) => one.width < one.wish);
    if (!cut.length) return;
    const each = Math.max(1, Math.floor(left / cut.length));
    for (const one of cut) {
      const more = Math.min(each, one.wish - one.width, left);
      one.width += more;
      left -= more;
    }
  }
}

/** Takes what is too much from the widest texts, if all columns have room then; not from the rows' names. */
function narrowed(made: { kind: string; width: number }[], over: number): void {
  const texts = made.slice(1).filter((one) => (one.kind === "text" || one.kind === "list") && one.width > LEAST_TEXT);
  if (texts.reduce((sum, one) => sum + one.width - LEAST_TEXT, 0) < over) return;
  for (let left = over; left > 0; left--) texts.reduce((most, one) => (one.width > most.width ? one : most)).width--;
}

/** The texts of a column's first rows, as their cells draw them. */
function textsOf(column: TableColumn, page: TablePage, start: number | string | null, short: (name: string) => string): string[] {
  const kernel = placeOf(page.name, column.name) === "kernel";
  const reasons = column.name === "op" ? page.values["reason"] : undefined;
  return (page.values[column.name] ?? []).slice(0, 200).map((value, row) => {
    if (value === null || value === undefined) return typeof reasons?.[row] === "string" ? `(${String(reasons[row])})` : isQuantity(column) ? UNKNOWN : "";
    if (typeof value === "string" && kernel) return short(value);
    if (typeof value === "string" && column.name === "source") return shortSource(value);
    return typeof value === "string" ? visible(value) : showIn(column, value, start);
  });
}

/** The width of the longer of two lines of words, split where that is least. */
function twoLines(text: string): number {
  const all = text.split(" ");
  const wide = (some: string[]) => textWidth(some.join(" "), true);
  return Math.min(wide(all), ...all.map((_, at) => Math.max(wide(all.slice(0, at)), wide(all.slice(at)))));
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
