// What the server is doing while a page waits: the stage, and how much of it is done.
import { useEffect, useState } from "preact/hooks";
import type { Source } from "../source";
import { visible } from "./format";

/** An answer that is being made; `opscope/viewer/work.py` says it. */
export interface Working {
  question: string;
  seconds: number;
  doing: string | null;
  done: number | null;
  total: number | null;
  unit: string;
}

/** Between two looks, in ms. */
const EACH = 400;

/** The words for what takes longest: the first, as answers come in the order of their age. */
export function wordsOf(all: Working[]): string {
  const one = all.find((each) => each.doing !== null) ?? all[0];
  if (!one) return "Working …";
  const share = one.total && one.done !== null ? `, ${Math.floor((100 * one.done) / one.total)} %` : "";
  const since = one.seconds >= 2 ? ` (${Math.floor(one.seconds)} s)` : "";
  const words = one.doing ? one.doing[0]!.toUpperCase() + one.doing.slice(1) : "Working";
  return `${words}${share} …${since}`;
}

/** A line that says what is being done; without a server, that something is. */
export function Working({ source, meanwhile = "Working …" }: { source: Source; meanwhile?: string }) {
  const [said, setSaid] = useState(meanwhile);
  useEffect(() => {
    if (!source.live) return;
    const abort = new AbortController();
    let timer = 0;
    const look = () =>
      source
        .ask<Working[]>("working", {}, abort.signal)
        .then(
          (all) => !abort.signal.aborted && setSaid(all.length ? wordsOf(all) : meanwhile),
          () => undefined,
        )
        .finally(() => {
          if (!abort.signal.aborted) timer = window.setTimeout(look, EACH);
        });
    void look();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [source]);
  return (
    <p class="loading" role="status">
      {visible(said)}
    </p>
  );
}
