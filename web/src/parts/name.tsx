// Names of ops, kernels, layers and lines: cut in the middle, whole on hover, linked to their page.
import type { ComponentChildren } from "preact";
import { hrefOf } from "../state";
import { shortSource, UNKNOWN, visible } from "./format";
import { Jump, lineOf } from "./jump";
import { useKernelNames } from "./kernel_names";

/** No name is drawn with more characters than this; its middle is left out beyond it. */
const DRAWN = 400;
const HOVER = 4_000;
const TAIL = 14;

/** Leaves out the middle of a text that is longer than `most` characters. */
export function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

/** A text that gives up its middle where it has no room; the whole on hover. */
export function Middle({ text, title }: { text: string; title?: string }) {
  const clean = visible(cut(text, DRAWN));
  const hover = title ?? visible(cut(text, HOVER));
  if (clean.length <= TAIL * 2) {
    return (
      <span class="mid" title={hover}>
        <span class="head">{clean}</span>
      </span>
    );
  }
  return (
    <span class="mid" title={hover}>
      <span class="head">{clean.slice(0, -TAIL)}</span>
      <span class="tail">{clean.slice(-TAIL)}</span>
    </span>
  );
}

/** What a name is of decides where its link goes. */
export const PLACES: Record<string, (value: string) => string> = {
  op: (value) => hrefOf("operators", { op: value }),
  kernel: (value) => hrefOf("kernels", { kernel: value }),
  layer: (value) => hrefOf("layers", { layer: value }),
  source: (value) => hrefOf("source", { source: value }),
  step: (value) => hrefOf("steps", { step: value }),
};

/** A name as a link to the page about it; `unknown` with its reason where there is none. */
export function Name({ of, value, why }: { of: keyof typeof PLACES | string; value: string | null | undefined; why?: string | null }) {
  if (value === null || value === undefined) return <Unknown why={why} />;
  const place = PLACES[of];
  if (!place) return <Middle text={value} />;
  const link = (
    <a class="name" href={place(value)}>
      <Middle text={of === "source" ? shortSource(value) : value} title={visible(cut(value, HOVER))} />
    </a>
  );
  if (of !== "source") return link;
  return (
    <span class="named">
      {link}
      <Jump line={lineOf(value)} />
    </span>
  );
}

/** A kernel's name so short that it has room, told apart from all others; whole on hover. */
export function Kernel({ name, link }: { name: string; link: boolean }) {
  const { short, whole } = useKernelNames();
  const text = <Middle text={short(name)} title={visible(cut(whole(name), HOVER))} />;
  return link ? (
    <a class="name" href={PLACES["kernel"]!(name)}>
      {text}
    </a>
  ) : (
    text
  );
}

/** "unknown", with the reason on hover where there is one. */
export function Unknown({ why, children }: { why?: string | null; children?: ComponentChildren }) {
  return (
    <span class="unknown" title={why ? `${UNKNOWN}: ${visible(why)}` : undefined}>
      {children ?? UNKNOWN}
    </span>
  );
}

/** The address of a span of time on the timeline; `start` and `end` in ns of the trace's clock, as text or number. */
export function timelineOf(start: number | string, end: number | string, more: Record<string, string> = {}): string {
  return hrefOf("timeline", { start: String(start), end: String(end), ...more });
}
