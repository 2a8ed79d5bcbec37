// The ruler: round times with as many digits as neighbouring marks need to differ.

const UNITS: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

export interface Mark {
  /** ns from the start of the trace. */
  at: number;
  text: string;
}

/** The least 1, 2 or 5 times a power of ten that is no less than `ns`, and at least 1 ns. */
export function roundStep(ns: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, ns)));
  for (const one of [1, 2, 5, 10]) if (one * power >= ns) return one * power;
  return 10 * power;
}

/** Marks of a window `[low, low + span)` (ns), about `apart` px from one another. */
export function marks(low: number, span: number, width: number, apart = 110): Mark[] {
  const step = roundStep((span * apart) / Math.max(1, width));
  const found: Mark[] = [];
  const first = Math.ceil(low / step);
  const most = Math.max(Math.abs(low), Math.abs(low + span));
  for (let place = first; place * step < low + span && found.length < 500; place++) {
    found.push({ at: place * step, text: stamp(place * step, step, most) });
  }
  return found;
}

/** A time as text, exact to `step`: `1.2345 s`; in the unit of a time of size `most`, so that marks are alike. */
export function stamp(at: number, step: number, most = Math.abs(at)): string {
  const size = Math.max(most, step);
  const [scale, unit] = UNITS.find(([one]) => size >= one) ?? UNITS[3]!;
  const digits = Math.max(0, Math.round(Math.log10(scale)) - Math.floor(Math.log10(step) + 1e-9));
  // Whole and broken part apart: a number of 16 digits is not exact
  const whole = Math.trunc(at / scale);
  const rest = Math.abs(Math.round(at - whole * scale));
  const broken = digits ? `.${String(rest).padStart(Math.round(Math.log10(scale)), "0").slice(0, digits)}` : "";
  return `${at < 0 && whole === 0 ? "-" : ""}${whole}${broken} ${unit}`;
}
