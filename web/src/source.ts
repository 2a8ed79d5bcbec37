// Where answers come from: the server, or the file that the page itself is.

import type { Held } from "./packed";

export type Params = Record<string, string | number | undefined>;

/** Asks the questions of opscope/viewer/questions by name. */
export interface Source {
  /** Whether the profile can still be asked: selections of steps and devices need a server. */
  live: boolean;
  ask<T>(question: string, params?: Params, signal?: AbortSignal): Promise<T>;
  bytes(question: string, params?: Params, signal?: AbortSignal): Promise<ArrayBuffer>;
  /** A whole table of a file, and whether rows of it were left out; null if the file has it not. */
  held?(table: string): Promise<{ table: Held; cut: boolean } | null>;
}

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Asks `api/QUESTION?…` of the server that the page came from. */
export class ServerSource implements Source {
  live = true;

  async ask<T>(question: string, params?: Params, signal?: AbortSignal): Promise<T> {
    return (await (await this.get(question, params, signal)).json()) as T;
  }

  async bytes(question: string, params?: Params, signal?: AbortSignal): Promise<ArrayBuffer> {
    return (await this.get(question, params, signal)).arrayBuffer();
  }

  private async get(question: string, params: Params = {}, signal?: AbortSignal): Promise<Response> {
    const given = new URLSearchParams();
    for (const [key, value] of Object.entries(params)) {
      if (value !== undefined) given.set(key, String(value));
    }
    given.sort();
    const url = `api/${question}?${given}`;
    const answer = await (early(url) ?? fetch(url, { signal: signal ?? null }));
    if (!answer.ok) throw new Refused(answer.status, await answer.text());
    return answer;
  }
}

declare global {
  interface Window {
    /** What the page's head asked while this script was read (opscope/viewer/early.py). */
    opscopeEarly?: { url: string; answer: Promise<Response> };
  }
}

/** Takes the answer that was asked for early, once and only for the same question. */
function early(url: string): Promise<Response> | undefined {
  const held = window.opscopeEarly;
  window.opscopeEarly = undefined;
  return held?.url === url ? held.answer : undefined;
}
