// Asks a page's question: aborted when no longer wanted, an old answer never shown over a new one.
import { useEffect, useState } from "preact/hooks";
import { type Params, Refused, type Source } from "../source";
import { selection } from "../state";

/** Loading is shown only after this long, in ms: a quick answer does not flicker. */
const PATIENCE = 150;
/** How many answers are kept for going back. */
const KEPT = 40;

export interface Answered<T> {
  /** Who was asked. */
  source: Source;
  /** The answer; while the next one is on its way, the last one (`stale`). */
  answer: T | undefined;
  /** Words for a person, with what to do. */
  error: string | undefined;
  /** The answer has been awaited for longer than a moment. */
  loading: boolean;
  /** `answer` belongs to the question before. */
  stale: boolean;
  again: () => void;
}

const kept = new WeakMap<Source, Map<string, unknown>>();

function memory(source: Source): Map<string, unknown> {
  let found = kept.get(source);
  if (!found) kept.set(source, (found = new Map()));
  return found;
}

/** Asks, or returns what was answered before: a profile does not change. */
export async function ask<T>(source: Source, question: string, params: Params, signal?: AbortSignal): Promise<T> {
  const key = keyOf(question, params);
  const known = memory(source);
  if (known.has(key)) return known.get(key) as T;
  const answer = await source.ask<T>(question, params, signal);
  known.set(key, answer);
  if (known.size > KEPT) known.delete(known.keys().next().value!);
  return answer;
}

export function keyOf(question: string, params: Params): string {
  return JSON.stringify([question, Object.entries(params).filter(([, value]) => value !== undefined).sort()]);
}

/** The words for a failure, with what to do. */
export function wordsFor(failure: unknown): string {
  if (failure instanceof Refused) {
    const text = failure.message.trim() || `status ${failure.status}`;
    return failure.status === 401 || failure.status === 403
      ? `${text} — open the address that opscope view printed; it holds the key.`
      : text;
  }
  if (failure instanceof TypeError) return "opscope view does not answer: it has ended, or the connection is gone. Start it again and reload this page.";
  return failure instanceof Error ? failure.message : String(failure);
}

/**
 * Asks `question` with `params` and the global steps, device and rank (`selection()`).
 * `question` null asks nothing.
 */
export function useAnswer<T>(source: Source, question: string | null, params: Params = {}): Answered<T> {
  const given: Params = { ...selection(), ...params };
  const key = question === null ? null : keyOf(question, given);
  const known = key === null ? undefined : (memory(source).get(key) as T | undefined);
  return useAsked(source, key, (signal) => ask<T>(source, question ?? "", given, signal), known);
}

/** Asks by `get` whenever `key` changes, null asks nothing; `known`: what is there already. */
export function useAsked<T>(source: Source, key: string | null, get: (signal: AbortSignal) => Promise<T>, known?: T): Answered<T> {
  const [attempt, setAttempt] = useState(0);
  const [got, setGot] = useState<{ key: string | null; answer?: T; error?: string }>({ key: null });
  const [slow, setSlow] = useState<string | null>(null);

  useEffect(() => {
    if (key === null) return;
    if (known !== undefined) {
      setGot({ key, answer: known });
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => setSlow(key), PATIENCE);
    get(abort.signal)
      .then(
        (answer) => !abort.signal.aborted && setGot({ key, answer }),
        (failure) => !abort.signal.aborted && setGot({ key, error: wordsFor(failure) }),
      )
      .finally(() => clearTimeout(timer));
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [source, key, attempt]);

  const current = got.key === key;
  return {
    source,
    answer: key === null ? undefined : got.answer,
    error: current ? got.error : undefined,
    loading: key !== null && !current && slow === key,
    stale: !current,
    again: () => {
      setGot({ key: null });
      setSlow(null);
      setAttempt(attempt + 1);
    },
  };
}
