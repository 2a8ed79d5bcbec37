// What charts share: values that may be unknown, and the colours of series.
export type Known = number | null;

/** Colours of series that have none of their own; told apart also by their dashes. */
export const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"];
