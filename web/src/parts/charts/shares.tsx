// One bar of parts that make up a whole, as HTML.
import "./charts.css";
import { share } from "../format";
import type { Part } from "./bars";

/** One bar of parts that make up a whole, with its legend, shares and values. */
export function Shares(props: {
  title: string;
  parts: Part[];
  show: (value: number) => string;
  exact?: (value: number) => string;
}) {
  const whole = props.parts.reduce((sum, part) => sum + part.value, 0);
  const exact = props.exact ?? props.show;
  if (!(whole > 0)) return null;
  return (
    <figure class="chart shares">
      <figcaption>
        <span class="chart-title">{props.title}</span>
      </figcaption>
      <div class="share-track" aria-hidden="true">
        {props.parts.map((part) => (
          <i
            key={part.name}
            title={`${part.name}: ${exact(part.value)}`}
            style={{ flexGrow: part.value / whole, "--swatch": `var(${part.colour})` }}
          />
        ))}
      </div>
      <ul class="share-list">
        {props.parts.map((part) => (
          <li key={part.name} title={part.title ?? exact(part.value)}>
            <i class="swatch" style={{ "--swatch": `var(${part.colour})` }} />
            {part.name} <b>{share(part.value / whole)}</b> {props.show(part.value)}
          </li>
        ))}
      </ul>
    </figure>
  );
}
