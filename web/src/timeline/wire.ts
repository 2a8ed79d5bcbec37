// The typed arrays of opscope/viewer/timeline/window.py and curves.py, as the page uses them.

/** The slices of one strip in a window: all of them, or what its columns hold. Times are ns from the window's start. */
export interface StripPicture {
  mode: "rows" | "columns";
  /** Place in the strip of each slice that is drawn by itself. */
  index: (place: number) => number;
  many: number;
  start: ArrayLike<number>;
  lasted: ArrayLike<number>;
  name: ArrayLike<number>;
  kind: Uint8Array;
  /** ns of slices in the window. */
  busy: number;
  /** Of columns: slices in the window, categories, their shares (255ths, category by category), longest slices. */
  slices: number;
  kinds: number[];
  shares: Uint8Array;
  longest: Int32Array;
}

export interface Picture {
  /** The window in ns: its start as the trace has it, and its length. */
  start: bigint;
  span: number;
  columns: number;
  lanes: Map<string, StripPicture[]>;
  bytes: number;
  /** Kernels have the categories of their names: their ops were not known yet. */
  provisional?: boolean;
}

export interface Curve {
  title: string;
  process: number;
  device: number;
  unit: string;
  most: number | null;
  how: string;
  values: Float32Array;
}

export interface CurvePicture {
  start: bigint;
  span: number;
  columns: number;
  curves: Curve[];
  left: number;
}

interface StripHead {
  mode: "rows" | "columns";
  first?: number;
  many: number;
  busy: number;
  wide: boolean;
  kinds?: number[];
  slices?: number;
}

export interface Head {
  start: string;
  span: number;
  columns: number;
  lanes: { id: string; strips: StripHead[] }[];
  provisional?: boolean;
}

/** Reads arrays one after the other, each from a multiple of 8 bytes on. */
export class Reader {
  private at: number;
  readonly head: unknown;

  constructor(private readonly buffer: ArrayBuffer) {
    const length = new DataView(buffer).getUint32(0, true);
    this.head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    this.at = Math.ceil((4 + length) / 8) * 8;
  }

  private next(bytes: number): number {
    const at = this.at;
    this.at += Math.ceil(bytes / 8) * 8;
    return at;
  }

  i32(many: number): Int32Array {
    return new Int32Array(this.buffer, this.next(4 * many), many);
  }
  u32(many: number): Uint32Array {
    return new Uint32Array(this.buffer, this.next(4 * many), many);
  }
  f32(many: number): Float32Array {
    return new Float32Array(this.buffer, this.next(4 * many), many);
  }
  f64(many: number): Float64Array {
    return new Float64Array(this.buffer, this.next(8 * many), many);
  }
  u8(many: number): Uint8Array {
    return new Uint8Array(this.buffer, this.next(many), many);
  }
}

const NOTHING = { kinds: [], shares: new Uint8Array(0), longest: new Int32Array(0) };

export function readPicture(buffer: ArrayBuffer): Picture {
  const reader = new Reader(buffer);
  const head = reader.head as Head;
  const lanes = new Map<string, StripPicture[]>();
  for (const lane of head.lanes) lanes.set(lane.id, lane.strips.map((one) => strip(reader, one, head.columns)));
  const made = { start: BigInt(head.start), span: head.span, columns: head.columns, lanes, bytes: buffer.byteLength };
  return { ...made, provisional: head.provisional === true };
}

function strip(reader: Reader, head: StripHead, columns: number): StripPicture {
  const { mode, many, busy } = head;
  const columned =
    mode === "columns"
      ? { kinds: head.kinds!, shares: reader.u8(head.kinds!.length * columns), longest: reader.i32(columns) }
      : NOTHING;
  const drawn = mode === "columns" ? reader.i32(many) : undefined;
  const first = head.first ?? 0;
  const start = head.wide ? reader.f64(many) : reader.i32(many);
  const lasted = head.wide ? reader.f64(many) : reader.i32(many);
  const name = reader.u32(many);
  const kind = reader.u8(many);
  const index = drawn ? (place: number) => drawn[place]! : (place: number) => first + place;
  return { mode, many, busy, index, start, lasted, name, kind, slices: head.slices ?? many, ...columned };
}

export function readCurves(buffer: ArrayBuffer): CurvePicture {
  const reader = new Reader(buffer);
  const head = reader.head as { start: string; span: number; columns: number; curves: Omit<Curve, "values">[]; left: number };
  const curves = head.curves.map((one) => ({ ...one, values: reader.f32(head.columns) }));
  return { start: BigInt(head.start), span: head.span, columns: head.columns, curves, left: head.left };
}
