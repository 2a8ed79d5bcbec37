// What is shown for long names of kernels: short forms of which no two look alike.
import { createContext } from "preact";
import { useContext, useMemo } from "preact/hooks";

/** What the question `kernel_names` answers (opscope/viewer/questions/kernel_names.py). */
export interface KernelNames {
  /** By the recorded name, if they differ. */
  short: Record<string, string>;
  /** The whole name where it was recorded mangled. */
  whole: Record<string, string>;
}

export const NamesOfKernels = createContext<KernelNames | null>(null);

const own = (of: Record<string, string> | undefined, name: string) => (of && Object.hasOwn(of, name) ? of[name]! : name);

/** Functions from a recorded name to what is shown of it, and to the whole of it. */
export function useKernelNames(): { short: (name: string) => string; whole: (name: string) => string } {
  const names = useContext(NamesOfKernels);
  return useMemo(() => ({ short: (name: string) => own(names?.short, name), whole: (name: string) => own(names?.whole, name) }), [names]);
}
