// What is known of the whole trace, for parts deep in a page: its span, devices, and where answers come from.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { About } from "../page";

export const AboutContext = createContext<About | null>(null);

/** Start of the trace in ns; points in time are shown from it on. */
export function useStart(): number | string | null {
  return useContext(AboutContext)?.span?.start ?? null;
}
