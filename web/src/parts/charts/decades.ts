// The ends of a logarithmic axis.

/** Between the outermost points and the edges, in decades: the largest point has a radius of 9 px. */
const ROOM = 0.3;

/** Whole decades around all points, with room for each of them whole, and around the ends of lines. */
export function decades(points: number[], lines: number[]): [number, number] {
  const ends = (sign: number) => [...points.map((one) => Math.log10(one) + sign * ROOM), ...lines.map((one) => Math.log10(one) + sign * 0.05)];
  return [10 ** Math.floor(Math.min(...ends(-1))), 10 ** Math.ceil(Math.max(...ends(1)))];
}
