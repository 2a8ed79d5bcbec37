// Bars with their names and values, as HTML.
import { Middle } from "../name";
import "./charts.css";
import type { Known } from "./series";

/** What is seen at least of each end of a name that is cut. */
const ENDS = 14;

export interface Part {
  name: string;
  value: number;
  colour: string;
  /** More about it, for the tooltip. */
  title?: string;
}

export interface Bar {
  name: string;
  /** null is unknown, which is said. */
  value: Known;
  /** Its parts, from the left; they add up to the value. */
  parts?: Part[];
  colour?: string;
  href?: string | undefined;
  title?: string;
  note?: string;
}

/** Bars with their names and values; with values of both signs, to both sides of one line. */
export function Bars(props: {
  title?: string;
  bars: Bar[];
  show: (value: number) => string;
  exact?: (value: number) => string;
  /** What a full bar is; without it the largest. */
  full?: number;
  legend?: { name: string; colour: string }[];
  empty?: string;
}) {
  const names = apart(props.bars.map((bar) => bar.name));
  const values = props.bars.map((bar) => bar.value ?? 0);
  const most = Math.max(props.full ?? 0, ...values.map(Math.abs), Number.MIN_VALUE);
  const signed = values.some((value) => value < 0);
  const exact = props.exact ?? props.show;
  if (!props.bars.length) return props.empty ? <p class="chart-note">{props.empty}</p> : null;
  return (
    <figure class="chart bars-chart">
      {(props.title || props.legend) && (
        <figcaption>
          {props.title && <span class="chart-title">{props.title}</span>}
          <span class="chart-legend">
            {(props.legend ?? []).map((key) => (
              <span key={key.name} class="chart-key">
                <i class="swatch" style={{ "--swatch": `var(${key.colour})` }} />
                {key.name}
              </span>
            ))}
          </span>
        </figcaption>
      )}
      <ul class={signed ? "bars signed" : "bars"}>
        {props.bars.map((bar, index) => {
          const value = bar.value;
          const wide = value === null ? 0 : (Math.abs(value) / most) * 100;
          const parts = bar.parts ?? [
            { name: "", value: value ?? 0, colour: bar.colour ?? (value && value > 0 && signed ? "--worse" : signed ? "--better" : "--series-1") },
          ];
          const whole = parts.reduce((sum, part) => sum + Math.abs(part.value), 0) || 1;
          const text = value === null ? "unknown" : exact(value);
          const title = bar.title ?? `${bar.name}: ${text}`;
          const name = <Middle text={names[index]!} title={title} />;
          return (
            <li key={index} title={title}>
              <span class="bar-name">{bar.href ? <a href={bar.href}>{name}</a> : name}</span>
              <span class="bar-track">
                <span
                  class={value !== null && value < 0 ? "bar minus" : "bar"}
                  style={{ width: `${signed ? wide / 2 : wide}%` }}
                >
                  {value !== null &&
                    parts.map((part, place) => (
                      <i
                        key={place}
                        title={part.title ?? (part.name ? `${part.name}: ${exact(part.value)}` : text)}
                        style={{ flexGrow: Math.abs(part.value) / whole, "--swatch": `var(${part.colour})` }}
                      />
                    ))}
                </span>
              </span>
              <span class="bar-value">
                {value === null ? "unknown" : props.show(value)}
                {bar.note && <small> {bar.note}</small>}
              </span>
            </li>
          );
        })}
      </ul>
    </figure>
  );
}

/** Names without the beginning that they share, where nothing but their middle tells them apart. */
export function apart(names: string[]): string[] {
  return names.map((name) => {
    const alike = names.filter((other) => other !== name && other.slice(0, ENDS) === name.slice(0, ENDS) && other.slice(-ENDS) === name.slice(-ENDS));
    const common = alike.map((other) => [...name].findIndex((letter, at) => letter !== other[at]));
    return alike.length ? `…${name.slice(Math.min(...common.map((at) => (at < 0 ? name.length : at))))}` : name;
  });
}
