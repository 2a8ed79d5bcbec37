// A share as a bar with its number beside it, never over it.
import type { ComponentChildren } from "preact";

/** `share`: 0 to 1, what a full bar is; the number is what stands inside. */
export function Share({ share, title, children }: { share: number; title?: string | undefined; children: ComponentChildren }) {
  return (
    <span class="shared" title={title}>
      <span class="track">
        <span class="bar" style={{ width: `${Math.max(0, Math.min(share, 1)) * 100}%` }} />
      </span>
      <span>{children}</span>
    </span>
  );
}
