// The roofs of a roofline: straight lines on log axes, from the device's peaks and the dtypes that are worked in.
import type { Roof } from "./charts/scatter";
import { show } from "./format";

/** The answer of the question "roofs": rates in FLOP/s by dtype, bandwidth in bytes/s, cache in bytes. */
export interface RoofsAnswer {
  device: string | null;
  reason: string | null;
  /** Device time (ns) by dtype of what ran. */
  worked: Record<string, number>;
  notes: string[];
  tensor: Record<string, number>;
  vector: Record<string, number>;
  bandwidth: number | null;
  cache: number | null;
}

export interface Peak {
  name: string;
  rate: number;
  tensor: boolean;
}

/** A dtype counts as worked in from this share of the time on. */
const SHARE = 0.01;

/** Returns the peaks of the dtypes that are worked in, those of one rate and unit as one; else the highest. */
export function peaksOf(answer: RoofsAnswer): Peak[] {
  const time = Object.values(answer.worked).reduce((sum, one) => sum + one, 0);
  const worked = new Set(
    Object.entries(answer.worked).flatMap(([dtype, ns]) => (ns >= SHARE * time ? [dtype] : [])),
  );
  if (worked.has("f32")) worked.add("tf32");
  const found: Peak[] = [];
  for (const [unit, table] of [
    ["tensor", answer.tensor],
    ["vector", answer.vector],
  ] as const) {
    const rates = new Map<number, string[]>();
    const all = Object.entries(table);
    const fitting = all.filter(([dtype]) => worked.has(dtype));
    // what is not in the table has the rate of f32 on vector units
    const kept = fitting.length || unit === "tensor" ? fitting : all.filter(([dtype]) => dtype === "f32");
    for (const [dtype, rate] of kept) rates.set(rate, [...(rates.get(rate) ?? []), dtype]);
    for (const [rate, dtypes] of rates) {
      found.push({ name: `${dtypes.join(", ")} ${unit} ${show(rate, "FLOP/s")}`, rate, tensor: unit === "tensor" });
    }
  }
  return found.sort((a, b) => b.rate - a.rate);
}

/** Returns the lines to draw around points from `low` to `high` (FLOP/byte). */
export function roofLines(answer: RoofsAnswer, low: number, high: number): Roof[] {
  const peaks = peaksOf(answer);
  const { bandwidth } = answer;
  const ridge = bandwidth && peaks.length ? peaks[0]!.rate / bandwidth : null;
  const right = Math.max(high, (ridge ?? high) * 4);
  const lines: Roof[] = peaks.map((peak) => ({
    name: peak.name,
    from: { x: bandwidth ? peak.rate / bandwidth : Math.min(low, right), y: peak.rate },
    to: { x: right, y: peak.rate },
    dashed: !peak.tensor,
  }));
  if (bandwidth) {
    const end = ridge ?? right;
    const start = Math.min(low, end / 10);
    lines.push({
      name: `memory ${show(bandwidth, "bytes/s")}`,
      from: { x: start, y: start * bandwidth },
      to: { x: end, y: end * bandwidth },
    });
  }
  return lines;
}
