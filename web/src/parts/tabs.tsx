// A choice among a few views of a page, kept in its address.
import { setParams } from "../state";

export function Tabs(props: {
  label: string;
  /** The address's parameter. */
  name: string;
  now: string;
  of: { value: string; text: string; title?: string }[];
  /** Other parameters that no longer hold when the choice changes. */
  clears?: string[];
}) {
  return (
    <div class="tabs" role="group" aria-label={props.label}>
      {props.of.map((one) => (
        <button
          key={one.value}
          type="button"
          aria-pressed={one.value === props.now}
          title={one.title}
          onClick={() =>
            setParams({ ...Object.fromEntries((props.clears ?? []).map((name) => [name, undefined])), [props.name]: one.value }, false)
          }
        >
          {one.text}
        </button>
      ))}
    </div>
  );
}
