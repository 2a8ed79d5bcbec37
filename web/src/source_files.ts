// What the question `source` answers (opscope/viewer/questions/source.py).
// Times are device time (without a GPU, the ops' own time) in ns, selected as everywhere; null if no time is known,
// as where kernels were not captured.

/** `source` without a file: the files that ops were called from. */
export interface SourceFiles {
  files: {
    file: string;
    /** Distinct lines of it that took time. */
    lines: number;
    /** Of ops whose innermost line is in it; and of all ops that it called, also through other files. */
    self_time: number | null;
    time: number | null;
    calls: number;
    /** time / whole. */
    share: number | null;
    /** null if its text can be shown, else why not. */
    reason: string | null;
  }[];
  whole: number | null;
  /** Time of what has no source line, and why if there is no line at all. */
  without: number | null;
  empty: string | null;
  /** Whether a line can be opened in an editor: `open` with `file` and `line`. */
  editor: boolean;
}

/** `source` with `file`: its lines with time, and its text if it may be shown. */
export interface SourceText {
  file: string;
  line: number[];
  self_time: (number | null)[];
  time: (number | null)[];
  calls: number[];
  /** The op with most of the line's time. */
  op: (string | null)[];
  whole: number | null;
  /** The whole text, lines ended by "\n"; null with the reason. */
  text: string | null;
  reason: string | null;
  /** What is doubtful of the text shown: another folder, no recorded hash. null without doubt. */
  note: string | null;
}

/** `open`: what was opened. 404 without --editor, or if the file may not be shown. */
export interface Opened {
  file: string;
  line: number;
}
