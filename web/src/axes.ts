// The times of a single file, as opscope/viewer/axes.py stores them: sorted, a list a lane; tables name places on them.

/** One lane's times: `first` plus each offset, in ns. */
export interface Axis {
  first: bigint;
  offsets: Float64Array;
}

/** A header in JSON, and what follows it. */
export function headed<T>(bytes: Uint8Array): { head: T; rest: Uint8Array } {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as T;
  return { head, rest: bytes.subarray(4 + length) };
}

/** Unsigned numbers of up to 6 bytes from their planes, lowest first. */
export function numbers(planes: Uint8Array, many: number, size: number): Float64Array {
  const out = new Float64Array(many);
  for (let plane = size - 1; plane >= 0; plane--) {
    const from = plane * many;
    for (let row = 0; row < many; row++) out[row] = out[row]! * 256 + planes[from + row]!;
  }
  return out;
}

/** The signed number that a zigzag one stands for. */
export function signed(one: number): number {
  return one % 2 ? -(one + 1) / 2 : one / 2;
}

/** An array with a value for each place; ten times faster than `from`. */
export function filled<T extends { [place: number]: number; length: number }>(array: T, value: (place: number) => number): T {
  for (let place = 0; place < array.length; place++) array[place] = value(place);
  return array;
}

/** For each value its place when all are sorted; equal ones keep their order. */
export function sortedPlaces(values: ArrayLike<number>): Uint32Array {
  let most = 0;
  for (let row = 0; row < values.length; row++) most = Math.max(most, values[row]!);
  const next = new Uint32Array(most + 2);
  for (let row = 0; row < values.length; row++) next[values[row]! + 1]! += 1;
  for (let value = 0; value <= most; value++) next[value + 1]! += next[value]!;
  return filled(new Uint32Array(values.length), (row) => next[values[row]!]!++);
}

/** Reads the axes; `events`: what happens at each place of each, by which their steps are sorted. */
export function readAxes(bytes: Uint8Array, events: (sizes: number[]) => Uint32Array[]): Axis[] {
  const { head, rest } = headed<{ axes: { many: number; first: string }[]; unit: number; size: number }>(bytes);
  const sizes = head.axes.map((one) => one.many);
  const all = sizes.reduce((sum, one) => sum + one, 0);
  const steps = numbers(rest, all, head.size);
  const happens = events(sizes);
  let from = 0;
  return head.axes.map(({ many, first }, number) => {
    const offsets = new Float64Array(many);
    const places = sortedPlaces(happens[number]!);
    let sum = 0;
    for (let place = 0; place < many; place++) {
      sum += steps[from + places[place]!]! * head.unit;
      offsets[place] = sum;
    }
    from += many;
    return { first: BigInt(first), offsets };
  });
}
