// Tables as opscope/viewer/packed.py stores them: read, ordered, searched and summed without a server.
import { type Axis, filled, headed, numbers, signed, sortedPlaces } from "./axes";
import { type Before, guess, type Launched } from "./guesses";

type Value = null | boolean | number | string | unknown[] | Record<string, unknown>;

interface Stored {
  name: string;
  as: "none" | "whole" | "real" | "words" | "time";
  least?: string;
  size?: number;
  step?: boolean;
  beside?: string;
  guess?: string;
  axis?: number;
  nulls?: boolean;
  of?: Value[];
}

export interface Column {
  name: string;
  known(row: number): boolean;
  value(row: number): Value;
  /** How two rows with known values compare. */
  compare(a: number, b: number): number;
  /** The rows' sum, exact for integers; null if none is known. */
  sum(rows: ArrayLike<number>): Value;
  /** Whether a row's value is this one, as JSON has it. */
  is(value: Value): (row: number) => boolean;
  /** Distinct values and each row's position in them plus 1; absent for numbers. */
  words?: { of: Value[]; codes: Float64Array };
}

export interface Held {
  rows: number;
  columns: Map<string, Column>;
}

const SAFE = BigInt(Number.MAX_SAFE_INTEGER);
const WHOLE = /^-?\d{1,20}$/;
/** Whole numbers beyond this are text in an answer. */
const EXACT = 2n ** 53n;

/** What a table may need beside its bytes. */
export interface Given {
  axes?: Axis[];
  launched?: Launched | undefined;
}

/** Reads a table. Throws RangeError or SyntaxError if the bytes are not one. */
export function unpack(bytes: Uint8Array, given: Given = {}): Held {
  const { head, rest } = headed<{ rows: number; turns?: boolean; columns: Stored[] }>(bytes);
  const reading = new Reading(rest, head.rows, given);
  if (head.turns) reading.turns();
  const columns = new Map<string, Column>();
  for (const stored of head.columns) columns.set(stored.name, reading.column(stored));
  return { rows: head.rows, columns };
}

/** Integers: numbers where all are exact, else all of any size. */
type Integers = Float64Array | BigInt64Array | bigint[];

/** Where a column's times are: the axis of each row (`all`: of every row) and the place on it. */
interface Places {
  axis: Uint8Array | null;
  all: number;
  place: Float64Array;
}

/** A table as it is read, column by column, in the order in which its rows are stored. */
class Reading implements Before {
  private at = 0;
  private readonly integers = new Map<string, Integers>();
  private readonly masks = new Map<string, Uint8Array | null>();
  private readonly places = new Map<string, Places>();
  /** The row that each stored one is; null: the same. */
  private order: Uint32Array | null = null;

  constructor(
    private readonly bytes: Uint8Array,
    readonly rows: number,
    private readonly given: Given,
  ) {}

  /** Rows are stored lane by lane. */
  turns(): void {
    const lane = this.take(this.rows);
    const stored = sortedPlaces(lane);
    this.order = new Uint32Array(this.rows);
    for (let row = 0; row < this.rows; row++) this.order[stored[row]!] = row;
  }

  number(name: string, row: number): number | null {
    const mask = this.masks.get(name);
    if (mask && mask[row] === 0) return null;
    const values = this.integers.get(name);
    return values === undefined ? null : Number(values[row]);
  }

  length(): Float64Array {
    const [start, end] = ["start", "end"].map((name) => this.integers.get(name));
    if (start === undefined || end === undefined) throw new RangeError("a length needs a start and an end");
    return filled(new Float64Array(this.rows), (row) =>
      start instanceof Float64Array && end instanceof Float64Array
        ? end[row]! - start[row]!
        : Number(BigInt(end[row]!) - BigInt(start[row]!)),
    );
  }

  column(stored: Stored): Column {
    const { name } = stored;
    const { rows } = this;
    if (stored.as === "none") {
      const never = () => false;
      return {
        name, known: never, value: () => null, compare: () => 0, sum: () => null,
        is: (value) => (value === null ? () => true : never),
      };
    }
    const mask = stored.nulls ? this.take(rows) : null;
    this.masks.set(name, mask);
    const seen = mask && this.ordered(mask, new Uint8Array(rows));
    const known = (row: number) => seen === null || seen[row] === 1;
    const size = stored.size ?? 1;
    switch (stored.as) {
      case "real":
        return reals(name, this.ordered(new Float64Array(joined(this.take(rows * 8), rows)), new Float64Array(rows)), known);
      case "words":
        return words(name, (stored.of ?? []) as Value[], this.ordered(numbers(this.take(rows * size), rows, size), new Float64Array(rows)));
    }
    const values = stored.as === "time" ? this.times(stored, size) : this.whole(stored, size);
    this.integers.set(name, values);
    if (values instanceof Float64Array) return smallWhole(name, this.ordered(values, new Float64Array(rows)), known);
    return largeWhole(name, this.ordered<bigint, BigInt64Array | bigint[]>(values, Array.isArray(values) ? [] : new BigInt64Array(rows)), known);
  }

  private take(many: number): Uint8Array {
    if (this.at + many > this.bytes.length) throw new RangeError("the table ends too early");
    this.at += many;
    return this.bytes.subarray(this.at - many, this.at);
  }

  /** The values in the table's order; `out` has room for them. */
  private ordered<V, T extends { [row: number]: V }>(values: T, out: T): T {
    const { order } = this;
    if (order === null) return values;
    for (let row = 0; row < order.length; row++) out[order[row]!] = values[row]!;
    return out;
  }

  private whole(stored: Stored, size: number): Integers {
    const { rows } = this;
    const planes = this.take(rows * size);
    if (stored.guess !== undefined) return besides(guess(stored.guess, this, this.given.launched), planes, rows, size);
    if (stored.beside !== undefined) {
      const other = this.integers.get(stored.beside);
      if (other === undefined) throw new RangeError(`${stored.name} needs the column ${stored.beside}`);
      return besides(other, planes, rows, size);
    }
    if (stored.of !== undefined) return distinct(stored.of as string[], planes);
    return integers(stored, planes, rows, size);
  }

  private times(stored: Stored, size: number): Integers {
    const { rows, given } = this;
    const axis = stored.axis === undefined ? this.take(rows) : null;
    const all = stored.axis ?? 0;
    const place = numbers(this.take(rows * size), rows, size);
    const other = stored.beside === undefined ? undefined : this.places.get(stored.beside);
    const last = new Float64Array(256);
    for (let row = 0; row < rows; row++) {
      const on = axis ? axis[row]! : all;
      const near = other && (other.axis ? other.axis[row]! : other.all) === on ? other.place[row]! : last[on]!;
      last[on] = place[row] = near + signed(place[row]!);
    }
    this.places.set(stored.name, { axis, all, place });
    const axes = given.axes ?? [];
    const used = axis ? axes : [axes[all]];
    const exactly = used.every((one) => one !== undefined && Number.isSafeInteger(Number(one.first)) && Number.isSafeInteger(Number(one.first) + one.offsets[one.offsets.length - 1]!));
    const out = exactly ? new Float64Array(rows) : new BigInt64Array(rows);
    for (let row = 0; row < rows; row++) {
      const one = axes[axis ? axis[row]! : all];
      const offset = one?.offsets[place[row]!];
      if (one === undefined || offset === undefined) throw new RangeError(`${stored.name} has a time that is not in the file`);
      if (out instanceof Float64Array) out[row] = Number(one.first) + offset;
      else out[row] = one.first + BigInt(offset);
    }
    return out;
  }
}

/** Integers that are in a list of distinct ones. */
function distinct(of: string[], places: Uint8Array): Integers {
  const all = of.map(BigInt);
  if (all.every((one) => one >= -SAFE && one <= SAFE)) {
    const small = all.map(Number);
    return filled(new Float64Array(places.length), (row) => small[places[row]!]!);
  }
  return Array.from(places, (place) => all[place]!);
}

/** Puts 8 byte planes together. */
function joined(planes: Uint8Array, rows: number): ArrayBuffer {
  const out = new Uint8Array(rows * 8);
  for (let plane = 0; plane < 8; plane++) {
    for (let row = 0; row < rows; row++) out[row * 8 + plane] = planes[plane * rows + row] as number;
  }
  return out.buffer;
}

/** Unsigned numbers of any size, modulo 2**64. */
function large(planes: Uint8Array, rows: number, size: number): BigInt64Array {
  const all = new Uint8Array(rows * 8);
  all.set(planes.subarray(0, rows * size));
  return new BigInt64Array(joined(all, rows));
}

function largeSigned(one: bigint): bigint {
  return one & 1n ? -((one + 1n) >> 1n) : one >> 1n;
}

/** Integers that are their least plus a number, or plus the sum of what each is above the one before. */
function integers(stored: Stored, planes: Uint8Array, rows: number, size: number): Integers {
  const least = BigInt(stored.least ?? "0");
  if (size <= 6 && least >= -SAFE && least <= SAFE) {
    const values = numbers(planes, rows, size);
    const base = Number(least);
    let sum = 0;
    let row = 0;
    for (; row < rows; row++) {
      sum = stored.step ? sum + signed(values[row]!) : values[row]!;
      const value = sum + base;
      if (!Number.isSafeInteger(sum) || !Number.isSafeInteger(value)) break;
      values[row] = value;
    }
    if (row === rows) return values;
  }
  const many = large(planes, rows, size);
  const values: bigint[] = new Array(rows);
  let sum = 0n;
  for (let row = 0; row < rows; row++) {
    const one = BigInt.asUintN(64, many[row]!);
    // modulo 2**64, as they were subtracted
    sum = stored.step ? BigInt.asUintN(64, sum + largeSigned(one)) : one;
    values[row] = least + sum;
  }
  return values;
}

/** Integers that are another column's in the same row plus a difference. */
function besides(other: Integers, planes: Uint8Array, rows: number, size: number): Integers {
  if (other instanceof Float64Array && size <= 6) {
    const values = numbers(planes, rows, size);
    let row = 0;
    for (; row < rows; row++) {
      const value = other[row]! + signed(values[row]!);
      if (!Number.isSafeInteger(value)) break;
      values[row] = value;
    }
    if (row === rows) return values;
  }
  const many = large(planes, rows, size);
  return Array.from({ length: rows }, (_, row) => {
    // differences of 64-bit numbers are modulo 2**64; the result lies where a signed one can
    return BigInt.asIntN(64, BigInt(other[row]!) + largeSigned(BigInt.asUintN(64, many[row]!)));
  });
}

/** An integer as JSON has it in an answer: beyond 2**53 as text. */
function exact(value: bigint): number | string {
  return value >= -EXACT && value <= EXACT ? Number(value) : String(value);
}

function smallWhole(name: string, values: Float64Array, known: (row: number) => boolean): Column {
  let most = 0;
  for (let row = 0; row < values.length; row++) most = Math.max(most, Math.abs(values[row]!));
  return {
    name,
    known,
    value: (row) => (known(row) ? values[row]! : null),
    compare: (a, b) => values[a]! - values[b]!,
    sum(rows) {
      if (most * rows.length > Number.MAX_SAFE_INTEGER) {
        return exactSum(rows, known, (row) => BigInt(values[row]!));
      }
      let sum = 0;
      let some = false;
      for (let i = 0; i < rows.length; i++) {
        const row = rows[i]!;
        if (known(row)) {
          sum += values[row]!;
          some = true;
        }
      }
      return some ? sum : null;
    },
    is(value) {
      if (value === null) return (row) => !known(row);
      const wanted = typeof value === "string" && WHOLE.test(value) ? Number(value) : value;
      return (row) => known(row) && values[row] === wanted;
    },
  };
}

function largeWhole(name: string, values: BigInt64Array | bigint[], known: (row: number) => boolean): Column {
  const keys = nearTogether(values);
  return {
    name,
    known,
    value: (row) => (known(row) ? exact(values[row]!) : null),
    compare: keys
      ? (a, b) => keys[a]! - keys[b]!
      : (a, b) => (values[a]! < values[b]! ? -1 : values[a]! > values[b]! ? 1 : 0),
    sum: (rows) => exactSum(rows, known, (row) => values[row]!),
    is(value) {
      if (value === null) return (row) => !known(row);
      if (typeof value !== "number" && !(typeof value === "string" && WHOLE.test(value))) return () => false;
      if (typeof value === "number" && !Number.isInteger(value)) return () => false;
      const wanted = BigInt(value);
      return (row) => known(row) && values[row] === wanted;
    },
  };
}

/** What each value is above the first, as a number; null if that is not exact. Numbers are sorted much faster. */
function nearTogether(values: BigInt64Array | bigint[]): Float64Array | null {
  const keys = new Float64Array(values.length);
  for (let row = 0; row < values.length; row++) {
    keys[row] = Number(values[row]! - values[0]!);
    if (!Number.isSafeInteger(keys[row])) return null;
  }
  return keys;
}

function exactSum(
  rows: ArrayLike<number>, known: (row: number) => boolean, value: (row: number) => bigint,
): number | string | null {
  let sum = 0n;
  let some = false;
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i]!;
    if (known(row)) {
      sum += value(row);
      some = true;
    }
  }
  return some ? exact(sum) : null;
}

function reals(name: string, values: Float64Array, known: (row: number) => boolean): Column {
  return {
    name,
    known,
    value: (row) => (known(row) ? values[row]! : null),
    compare: (a, b) => values[a]! - values[b]!,
    sum: (rows) => realSum(rows, (row) => (known(row) ? values[row]! : null)),
    is(value) {
      if (value === null) return (row) => !known(row);
      return (row) => known(row) && values[row] === value;
    },
  };
}

/** Neumaier's sum: the error does not grow with the number of rows. */
function realSum(rows: ArrayLike<number>, value: (row: number) => number | null): number | null {
  let sum = 0;
  let lost = 0;
  let some = false;
  for (let i = 0; i < rows.length; i++) {
    const one = value(rows[i]!);
    if (one === null) continue;
    some = true;
    const next = sum + one;
    lost += Math.abs(sum) >= Math.abs(one) ? sum - next + one : one - next + sum;
    sum = next;
  }
  return some ? sum + lost : null;
}

function words(name: string, of: Value[], codes: Float64Array): Column {
  const real = of.length > 0 && of.every((one) => typeof one === "number");
  return {
    name,
    known: (row) => codes[row] !== 0,
    value: (row) => (codes[row] === 0 ? null : (of[codes[row]! - 1] ?? null)),
    // words are stored in order
    compare: (a, b) => codes[a]! - codes[b]!,
    sum: (rows) =>
      real ? realSum(rows, (row) => (codes[row] === 0 ? null : (of[codes[row]! - 1] as number))) : null,
    is(value) {
      if (value === null) return (row) => codes[row] === 0;
      const text = JSON.stringify(value);
      const code = 1 + of.findIndex((one) => one === value || (typeof one === "object" && JSON.stringify(one) === text));
      return (row) => code !== 0 && codes[row] === code;
    },
    words: { of, codes },
  };
}

export interface Wanted {
  q?: string;
  /** The one column in which `q` is looked for; all texts without it. */
  within?: string;
  where?: Record<string, Value>;
  sort?: string;
}

/** The rows that search and `where` leave, in the order asked for; unknown values come last. */
export function rowsOf(held: Held, wanted: Wanted): Uint32Array {
  const tests: ((row: number) => boolean)[] = [];
  for (const [name, value] of Object.entries(wanted.where ?? {})) {
    tests.push(columnOf(held, name).is(value));
  }
  if (wanted.q) tests.push(searched(held, wanted.q, wanted.within));
  let rows = new Uint32Array(held.rows);
  let many = 0;
  for (let row = 0; row < held.rows; row++) {
    if (tests.every((test) => test(row))) rows[many++] = row;
  }
  rows = rows.slice(0, many);
  if (!wanted.sort) return rows;
  const down = wanted.sort.startsWith("-");
  const by = columnOf(held, down ? wanted.sort.slice(1) : wanted.sort);
  if (by.words?.of.some((one) => typeof one === "object")) {
    throw new NoColumn(`sort: ${by.name} holds lists, which have no order`);
  }
  const sign = down ? -1 : 1;
  return rows.sort((a, b) => {
    const has = by.known(a);
    if (has !== by.known(b)) return has ? -1 : 1;
    // rows that are equal keep their order
    return (has ? sign * by.compare(a, b) : 0) || a - b;
  });
}

/** A column is missing, or cannot be sorted by. */
export class NoColumn extends Error {}

export function columnOf(held: Held, name: string): Column {
  const found = held.columns.get(name);
  if (found === undefined) throw new NoColumn(`there is no column ${name}`);
  return found;
}

/** Whether any text of a row contains `q`, whatever the case; a text is looked at once, not once a row. */
function searched(held: Held, q: string, within?: string): (row: number) => boolean {
  // the same folding of case as the server's
  const pattern = new RegExp(q.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&"), "iu");
  const hits: { codes: Float64Array; found: boolean[] }[] = [];
  const columns = within ? [columnOf(held, within)] : held.columns.values();
  for (const { words } of columns) {
    if (words === undefined) continue;
    const found = [false, ...words.of.map((one) => typeof one === "string" && pattern.test(one))];
    if (found.includes(true)) hits.push({ codes: words.codes, found });
  }
  return (row) => hits.some((one) => one.found[one.codes[row]!]);
}
