// Colours by kind of work, the same on every page; viewer.css holds their values for light and dark.

/** The kinds of work of the report `by_kind`, each with its CSS variable. */
export const KINDS: Record<string, string> = {
  "matrix products": "--k-matrix",
  attention: "--k-attention",
  convolution: "--k-convolution",
  normalisation: "--k-normalisation",
  elementwise: "--k-elementwise",
  reductions: "--k-reductions",
  copies: "--k-copies",
  embedding: "--k-embedding",
  optimizer: "--k-optimizer",
  communication: "--k-communication",
  other: "--k-other",
  unknown: "--k-unknown",
  "outside any op": "--k-outside",
};

/** Families of ops (`op_type`), parts and phases of a step, and states of a device, by the kind whose colour they have. */
const SAME: Record<string, string> = {
  ...of("matrix products", "gemm moe recurrent kernel_part kernels matmul forward_phase forward"),
  ...of("attention", "attention"),
  ...of("convolution", "conv backward_phase backward"),
  ...of("normalisation", "norm softmax set_part"),
  ...of("elementwise", "elementwise activation dropout quantize random op_part"),
  ...of("reductions", "reduction scan pooling loss runtime_part"),
  ...of("copies", "copy fill index view allocation copy_part copies memops"),
  ...of("embedding", "embedding loader_part input_phase input"),
  ...of("optimizer", "optimizer optimizer_phase"),
  ...of("communication", "communication communication_part"),
  ...of("other", "sort search fft linalg interpolation host query autograd test other_part"),
  ...of("outside any op", "outside_phases outside idle"),
};

function of(kind: string, names: string): Record<string, string> {
  return Object.fromEntries(names.split(" ").map((name) => [name, kind]));
}

/** The CSS variable of a kind, family, part or phase: `--k-matrix`. */
export function variableOf(kind: string | null | undefined): string {
  if (!kind) return "--k-unknown";
  if (Object.hasOwn(KINDS, kind)) return KINDS[kind]!;
  const same = Object.hasOwn(SAME, kind) ? SAME[kind]! : "unknown";
  return KINDS[same]!;
}

/** Whether it is a kind, family, part or phase that has a colour of its own. */
export function hasColour(kind: string): boolean {
  return Object.hasOwn(KINDS, kind) || Object.hasOwn(SAME, kind);
}

/** The colour of a kind, family, part or phase for CSS: `var(--k-matrix)`. */
export function colourOf(kind: string | null | undefined): string {
  return `var(${variableOf(kind)})`;
}

/** The colour's value now, for a canvas; ask again when the theme changes (`useTheme`). */
export function resolved(kind: string | null | undefined): string {
  return valueOf(variableOf(kind));
}

/** The value now of a CSS variable of the page: `valueOf("--ink")`. */
export function valueOf(variable: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}
