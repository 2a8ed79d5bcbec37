// A page: its name in the address, its title, and its component.
import type { ComponentType } from "preact";
import type { Source } from "./source";

export interface About {
  /** The files, as the user gave them. */
  files: string[];
  other: string[];
  version: string;
  /** Step numbers there are, first and last; null without steps. Not `marked`: the iterations that were found. */
  steps: { first: number; last: number; count: number; marked: boolean } | null;
  devices: { device: number; name: string }[];
  ranks: number[];
  cpu_only: boolean;
  /** Its first and last time in ns on the trace's clock; text beyond 2^53. */
  span: { start: number | string; end: number | string } | null;
  /** What was selected when a file was written; null for all. */
  selected: string | null;
  /** Of which part of a job it was merged, "997 of 1,000 ranks"; null of a profile with events. */
  merged: string | null;
  /** Whether the server opens lines in an editor: `opscope view --editor`. */
  editor: boolean;
  /** It is one of several runs, which a page two folders up lists. */
  of_runs: boolean;
  /** Columns that the vendor of the devices calls otherwise, and what it calls them. */
  called: Record<string, string>;
  /** Per page, why it has no content; pages that have some are absent. */
  empty: Record<string, string>;
}

export interface PageProps {
  source: Source;
  about: About;
  /** Changes whenever the address does. */
  params: URLSearchParams;
  /** A page that is `alone` calls it once it has drawn, or has nothing to draw. */
  shown?: () => void;
}

export interface Page {
  name: string;
  title: string;
  /** A single key after "g" that goes there. */
  key: string;
  component: ComponentType<PageProps>;
  /** It does not read `about`, which is asked once it has drawn: of ten million kernels that takes seconds. */
  alone?: boolean;
}
