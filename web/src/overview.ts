// What the question `overview` answers (opscope/viewer/questions/overview.py): the figures of the first page.
// Each is that of a report, to the digit; an unknown one is null and says why.

/** A figure. `value` is in `unit` (ns, fraction, FLOP/s, count …); beyond 2^53 it is text. */
export interface Card {
  name: string;
  title: string;
  value: number | string | null;
  unit: string;
  /** A part of a whole for a bar beside it, 0 to 1; null without one. */
  share: number | null;
  /** The part for which it is not known, 0 to 1, such as the time in which Tensor Cores are undetermined. */
  undetermined: number | null;
  /** What it is of, and how it varies, in words. */
  detail: string;
  /** Why it is null; null where it is known. */
  reason: string | null;
  /** The page that shows more, and the report and column that the figure is of. */
  page: string;
  report: string;
  column: string;
}

export interface Diagnosis {
  rank: number | null;
  finding: string;
  share: number | null;
  lost: number | null;
  text: string;
  to_try: string | null;
}

export interface StepPart {
  process: number;
  rank: number | null;
  /** communication, kernels, copies, sets, runtime, loader, CPU ops, other. */
  part: string;
  /** Of all steps that are counted, in ns; its share of their time; the median of a step. */
  total: number | null;
  share: number | null;
  median: number | null;
}

export interface TopOp {
  /** null: time without an op, for `reason`. */
  op: string | null;
  direction: string | null;
  kind: string | null;
  device_time: number;
  share: number | null;
  calls: number;
  reason: string | null;
}

export interface Unattributed {
  /** Device time without an op, and all of it. */
  time: number | null;
  whole: number | null;
  reasons: { reason: string; kernels: number | null; copies: number | null; time: number; share: number | null }[];
}

export interface Overview {
  /** What was selected, in words; null for all. */
  selected: string | null;
  /** The time that "device time" is: of GPU work, or of ops without a GPU. */
  device: string;
  cards: Card[];
  diagnosis: Diagnosis[];
  /** How the time of steps divides; empty without steps, then `no_steps` says why. */
  steps: StepPart[];
  no_steps: string | null;
  top: TopOp[];
  /** How many ops there are and what part of the time the others take: "ten of 37; 12 % in the others". */
  ops: number;
  others_share: number | null;
  no_ops: string | null;
  unattributed: Unattributed;
  /** Warnings about the trace, in words. */
  warnings: string[];
}

export interface Advice {
  number: number;
  detector: string;
  finding: string;
  recommendation: string;
  time: number | null;
  saving: number | null;
  saving_share: number | null;
  saving_least: number | null;
  saving_most: number | null;
  /** The saving with its bounds, in words. */
  saving_text: string;
  confidence: string | null;
}

/** `overview` with `part=advice`: asked apart, as it may take seconds for a large trace. */
export interface OverviewAdvice {
  advice: Advice[];
  /** What all of them save together, in a sentence. */
  together: string | null;
  /** What no detector could tell, and which found nothing, a line each. */
  rest: string[];
}
