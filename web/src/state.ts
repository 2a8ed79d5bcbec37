// The page's address: which page, which selection, and what the page itself keeps, all in the hash.
// A hash works from a server and from a file on disk, and an address can be sent.
import { framed } from "./framed";

export interface Route {
  page: string;
  params: URLSearchParams;
}

/** Parameters that every page has: one step range, one device, one search. */
export const GLOBAL = ["steps", "device", "rank", "q"] as const;

export function route(): Route {
  const [page, rest] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { page: page || "overview", params: new URLSearchParams(rest ?? "") };
}

export function address(page: string, params: URLSearchParams): string {
  const text = params.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** Goes to another page with the global selection kept. */
export function hrefOf(page: string, more: Record<string, string> = {}): string {
  const now = route().params;
  const params = new URLSearchParams();
  for (const name of GLOBAL) {
    const value = now.get(name);
    if (value) params.set(name, value);
  }
  for (const [key, value] of Object.entries(more)) params.set(key, value);
  return address(page, params);
}

/** Changes parameters of this page's address; undefined or "" removes one. */
export function setParams(change: Record<string, string | undefined>, replace = true): void {
  const { page, params } = route();
  for (const [key, value] of Object.entries(change)) {
    if (value) params.set(key, value);
    else params.delete(key);
  }
  const next = address(page, params);
  if (next === location.hash) return;
  if (framed()) {
    location.hash = next;
    return;
  }
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The global selection as parameters of a question. */
export function selection(): Record<string, string> {
  const now = route().params;
  const found: Record<string, string> = {};
  for (const name of ["steps", "device", "rank"]) {
    const value = now.get(name);
    if (value) found[name] = value;
  }
  return found;
}
