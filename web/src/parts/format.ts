// Values as a person reads them: three digits and a unit, as the terminal shows them; unknown is never 0.

export const UNKNOWN = "unknown";

const PREFIXES: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
const TIMES: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
];

/** Fractions that are no part of a whole: shown as numbers, not as percent. */
const RATIOS = new Set(["blocks_per_sm", "waves"]);
/** Columns of unit ns that are points in time on the trace's clock. */
const POINTS = new Set(["start", "end", "call_start", "call_end", "peak_time", "allocated_at", "released_at", "at"]);

/** What a column's values are; the server's columns have this shape. */
export interface Shown {
  name: string;
  unit: string;
}

/** The value as a number, null if it is none. Whole numbers beyond 2^53 come as text. */
export function numeric(value: unknown): number | null {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "string" && /^-?\d+$/.test(value)) return Number(value);
  return null;
}

function digits(value: number): string {
  const size = Math.abs(value);
  return size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** Three digits, all before the point if there are more: `1.23`, `12.3`, `123`, `1,234`. */
function scaled(value: number): string {
  return Math.abs(value) >= 999.5 ? grouped(value.toFixed(0)) : digits(value);
}

/** Puts a comma after every three digits of a whole number's text. */
function grouped(text: string): string {
  return text.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Writes a number with all its digits, without an exponent where that is readable. */
function whole(value: unknown): string {
  const text = String(value);
  if (/^-?\d+$/.test(text)) return grouped(text);
  const parts = /^(-?\d+)(\.\d+)$/.exec(text);
  const number = Number(value);
  if (!parts && Number.isInteger(number) && Math.abs(number) < 1e21) return grouped(number.toFixed(0));
  return parts ? grouped(parts[1]!) + parts[2]! : text;
}

/** Nanoseconds as `812 ns`, `12.3 µs`, `4.56 ms`, `78.9 s`. */
export function time(ns: unknown): string {
  const value = numeric(ns);
  if (value === null) return UNKNOWN;
  for (const [scale, unit] of TIMES) {
    if (Math.abs(value) >= scale * 0.9995) {
      return `${scaled(value / scale)} ${unit}`;
    }
  }
  return `${Number.isInteger(value) ? value : ratio(value)} ns`;
}

function decimal(value: number, unit: string): string {
  for (const [scale, prefix] of PREFIXES) {
    if (Math.abs(value) >= scale * 0.9995) return `${scaled(value / scale)} ${prefix}${unit}`;
  }
  return Number.isInteger(value) ? `${value} ${unit}` : `${ratio(value)} ${unit}`;
}



/** A number without a unit, to three digits. */
export function ratio(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return grouped(value.toFixed(0));
  if (value === 0) return "0";
  return size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(3)));
}

/** A fraction of 1 as `12.3 %`; never rounded to 100 % or 0 %, on either side of it. */
export function share(value: unknown): string {
  const part = numeric(value);
  if (part === null) return UNKNOWN;
  const size = Math.abs(part);
  if (size > 0 && size < 0.0005) return part > 0 ? "<0.1 %" : ">-0.1 %";
  if (size >= 0.9995 && size < 1) return part > 0 ? ">99.9 %" : "<-99.9 %";
  return `${whole((part * 100).toFixed(1))} %`;
}

/** Text with control, direction and invisible characters written as their escapes. */
export function visible(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu, (one) => {
    const code = one.codePointAt(0)!;
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** A value as a person reads it: `12.3 ms`, `4.56 GB`, `78.9 TFLOP/s`; `unknown` for null. */
/** Units that `show` writes, or that need no word. */
export const UNITS: ReadonlySet<string> = new Set("ns bytes bytes/s FLOP FLOP/s J W fraction FLOP/byte ppm 1/s count number text yes/no".split(" "));

export function show(value: unknown, unit: string): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map((one) => show(one, unit)).join(", ");
  if (unit === "text" || unit === "yes/no") return visible(String(value));
  const number = numeric(value);
  if (number === null) return typeof value === "string" ? visible(value) : UNKNOWN;
  switch (unit) {
    case "ns":
      return time(value);
    case "bytes":
      return decimal(number, "B");
    case "bytes/s":
      return decimal(number, "B/s");
    case "FLOP":
    case "FLOP/s":
      return decimal(number, unit);
    case "J":
    case "W":
      return Math.abs(number) > 0 && Math.abs(number) < 0.9995 ? `${ratio(number * 1e3)} m${unit}` : decimal(number, unit);
    case "fraction":
      return share(number);
    case "FLOP/byte":
      return `${ratio(number)} FLOP/B`;
    case "ppm":
      return `${ratio(number)} ppm`;
    case "1/s":
      return `${ratio(number)} /s`;
    case "count":
      return whole(value);
    case "number":
      return String(value);
    default:
      return Number.isInteger(number) ? whole(value) : ratio(number);
  }
}

const LONG: Record<string, string> = { bytes: "bytes", "bytes/s": "bytes/s", fraction: "", count: "", number: "", value: "", "1/s": "per second", "FLOP/byte": "FLOP per byte" };

/** The value with every digit there is, and its unit: for a tooltip. */
export function exact(value: unknown, unit: string): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value === "boolean" || Array.isArray(value) || unit === "text" || unit === "yes/no") return show(value, unit);
  if (numeric(value) === null) return show(value, unit);
  const text = unit === "number" ? String(value) : whole(value);
  const named = LONG[unit] ?? unit;
  return named ? `${text} ${named}` : text;
}

/** Whether a column holds points in time, which read best from the start of the trace. */
export function isPoint(column: Shown): boolean {
  return column.unit === "ns" && POINTS.has(column.name);
}

/** A cell of a column, as a person reads it; `start`: the trace's start in ns. */
export function showIn(column: Shown, value: unknown, start?: number | string | null): string {
  if (column.unit === "fraction" && RATIOS.has(column.name)) {
    const number = numeric(value);
    return number === null ? UNKNOWN : ratio(number);
  }
  if (isPoint(column)) return since(value, start);
  return show(value, column.unit);
}

/** A point in time, counted from `start`: `+27.4 ms`. Without a start, its digits. */
export function since(value: unknown, start?: number | string | null): string {
  if (numeric(value) === null) return UNKNOWN;
  if (start === undefined || start === null) return exact(value, "ns");
  const offset = big(value) - big(start);
  const size = offset < 0n ? -offset : offset;
  // Five digits: neighbours in a list stay apart
  const ns = Number(size);
  const [scale, unit] = TIMES.find(([least]) => ns >= least) ?? [1, "ns"];
  const value5 = ns / scale;
  const text = scale === 1 ? String(ns) : value5 >= 1e5 ? grouped(value5.toFixed(0)) : value5.toPrecision(5);
  return `${offset < 0n ? "−" : "+"}${text} ${unit}`;
}

function big(value: unknown): bigint {
  return typeof value === "number" ? BigInt(Math.round(value)) : BigInt(String(value));
}

/** Source lines without their folders: `net.py:19 < train.py:46`; of a file called as many are, with its folder. */
export function shortSource(text: string): string {
  const bare = (line: string) => /[^/\\]*(?:[/\\](?:__init__|__main__|utils|model|main)\.py:\d+)?$/.exec(line)?.[0] || line;
  return text.split(" < ").map(bare).join(" < ");
}

/** A column's name as words. */
export function words(name: string): string {
  return name.replace(/_/g, " ");
}
