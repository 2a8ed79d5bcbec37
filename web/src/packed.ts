// Tables as opscope/viewer/packed.py stores them: read, ordered, searched and summed without a server.

type Value = null | boolean | number | string | unknown[] | Record<string, unknown>;

interface Stored {
  name: string;
  as: "none" | "whole" | "real" | "words";
  least?: string;
  size?: number;
  step?: boolean;
  beside?: string;
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

/** Reads a table. Throws RangeError or SyntaxError if the bytes are not one. */
export function unpack(bytes: Uint8Array): Held {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as {
    rows: number;
    columns: Stored[];
  };
  let at = 4 + length;
  const take = (many: number): Uint8Array => {
    if (at + many > bytes.length) throw new RangeError("the table ends too early");
    at += many;
    return bytes.subarray(at - many, at);
  };
  const columns = new Map<string, Column>();
  const before = new Map<string, Integers>();
  for (const stored of header.columns) columns.set(stored.name, column(stored, header.rows, take, before));
  return { rows: header.rows, columns };
}

/** Integers: numbers where all are exact, else all of any size. */
type Integers = Float64Array | bigint[];

function column(
  stored: Stored, rows: number, take: (many: number) => Uint8Array, before: Map<string, Integers>,
): Column {
  const { name } = stored;
  if (stored.as === "none") {
    const never = () => false;
    return {
      name, known: never, value: () => null, compare: () => 0, sum: () => null,
      is: (value) => (value === null ? () => true : never),
    };
  }
  const mask = stored.nulls ? take(rows) : null;
  const known = (row: number) => mask === null || mask[row] === 1;
  if (stored.as === "real") return reals(name, new Float64Array(joined(take(rows * 8), rows)), known);
  const size = stored.size ?? 1;
  if (stored.as === "words") return words(name, stored.of ?? [], numbers(take(rows * size), rows, size));
  const planes = take(rows * size);
  let values = stored.beside === undefined ? integers(stored, planes, rows, size) : null;
  if (stored.beside !== undefined) {
    const other = before.get(stored.beside);
    if (other === undefined) throw new RangeError(`${name} needs the column ${stored.beside}`);
    values = besides(other, planes, rows, size);
  }
  values ??= new Float64Array(rows);
  before.set(name, values);
  return values instanceof Float64Array ? smallWhole(name, values, known) : largeWhole(name, values, known);
}

/** Puts 8 byte planes together. */
function joined(planes: Uint8Array, rows: number): ArrayBuffer {
  const out = new Uint8Array(rows * 8);
  for (let plane = 0; plane < 8; plane++) {
    for (let row = 0; row < rows; row++) out[row * 8 + plane] = planes[plane * rows + row] as number;
  }
  return out.buffer;
}

/** Unsigned numbers of up to 6 bytes from their planes. */
function numbers(planes: Uint8Array, rows: number, size: number): Float64Array {
  const out = new Float64Array(rows);
  for (let plane = size - 1; plane >= 0; plane--) {
    const from = plane * rows;
    for (let row = 0; row < rows; row++) out[row] = out[row]! * 256 + planes[from + row]!;
  }
  return out;
}

/** Unsigned numbers of any size, modulo 2**64. */
function large(planes: Uint8Array, rows: number, size: number): BigInt64Array {
  const all = new Uint8Array(rows * 8);
  all.set(planes.subarray(0, rows * size));
  return new BigInt64Array(joined(all, rows));
}

/** The signed number that a zigzag one stands for. */
function signed(one: number): number {
  return one % 2 ? -(one + 1) / 2 : one / 2;
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

function largeWhole(name: string, values: bigint[], known: (row: number) => boolean): Column {
  return {
    name,
    known,
    value: (row) => (known(row) ? exact(values[row]!) : null),
    compare: (a, b) => (values[a]! < values[b]! ? -1 : values[a]! > values[b]! ? 1 : 0),
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
  where?: Record<string, Value>;
  sort?: string;
}

/** The rows that search and `where` leave, in the order asked for; unknown values come last. */
export function rowsOf(held: Held, wanted: Wanted): Uint32Array {
  const tests: ((row: number) => boolean)[] = [];
  for (const [name, value] of Object.entries(wanted.where ?? {})) {
    tests.push(columnOf(held, name).is(value));
  }
  if (wanted.q) tests.push(searched(held, wanted.q));
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
function searched(held: Held, q: string): (row: number) => boolean {
  // the same folding of case as the server's
  const pattern = new RegExp(q.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&"), "iu");
  const hits: { codes: Float64Array; found: boolean[] }[] = [];
  for (const { words } of held.columns.values()) {
    if (words === undefined) continue;
    const found = [false, ...words.of.map((one) => typeof one === "string" && pattern.test(one))];
    if (found.includes(true)) hits.push({ codes: words.codes, found });
  }
  return (row) => hits.some((one) => one.found[one.codes[row]!]);
}
