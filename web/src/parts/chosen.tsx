// What is selected on a page, whole, with a way back.
import type { ComponentChildren } from "preact";
import { visible } from "./format";
import { cut } from "./name";

export function Chosen({ what, value, onClear, children }: { what: string; value: string; onClear: () => void; children?: ComponentChildren }) {
  return (
    <div class="chosen">
      <h2>
        <span class="quiet">{what}</span> <span class="chosen-name">{visible(cut(value, 2_000))}</span>
      </h2>
      {children}
      <button type="button" onClick={onClear}>
        Clear
      </button>
    </div>
  );
}
