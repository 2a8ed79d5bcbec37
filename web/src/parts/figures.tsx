// A row of figures with their names, each exact on hover; what is unknown says why.
import type { ComponentChildren } from "preact";
import { exact, show } from "./format";
import { Unknown } from "./name";

export interface Figure {
  name: string;
  value: unknown;
  unit: string;
  why?: string | null;
  note?: ComponentChildren;
  title?: string;
}

export function Figures({ of }: { of: Figure[] }) {
  return (
    <dl class="figures">
      {of.map((one) => (
        <div key={one.name} title={one.title}>
          <dt>{one.name}</dt>
          <dd title={one.value === null ? undefined : exact(one.value, one.unit)}>
            {one.value === null || one.value === undefined ? <Unknown why={one.why ?? null} /> : show(one.value, one.unit)}{" "}
            {one.note && <small>{one.note}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
