// Charts: curves and scatter on uPlot, bars and shares as HTML. Each takes arrays and has a table in words.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./charts.css";
import { colour, useWidth } from "./canvas";
import { useTheme } from "./theme";

export type Known = number | null;

/** Colours of series that have none of their own; told apart also by their dashes. */
export const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"];
const DASHES: number[][] = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [3, 6]];

export interface Curve {
  name: string;
  values: Known[];
  /** A CSS variable or colour. */
  colour?: string;
  /** Fills the area below. */
  fill?: boolean;
}

export interface Mark {
  x: number;
  label: string;
}

export interface CurvesProps {
  title: string;
  /** Ascending. */
  x: number[];
  curves: Curve[];
  showX: (x: number) => string;
  show: (value: number) => string;
  /** A value holds until the next one. */
  stepped?: boolean;
  /** Points alone are what was measured: draw them too. */
  points?: boolean;
  height?: number;
  /** Vertical lines with a word. */
  marks?: Mark[];
  /** The least that the upper end of the axis shows. */
  atLeast?: number;
  onPick?: (index: number) => void;
  /** A range was dragged. */
  onRange?: (from: number, to: number) => void;
  xName?: string;
  note?: ComponentChildren;
}

const ROWS = 200;

/** One or more curves over one axis; the pointer or the arrow keys read the values at a place. */
export function Curves(props: CurvesProps) {
  const { title, x, curves, showX, show, height = 180 } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const given = useRef(props);
  given.current = props;
  const width = useWidth(place);
  const theme = useTheme();
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    const element = place.current;
    if (!element || !width || !x.length) return;
    const ink = colour(element, "--quiet");
    const line = colour(element, "--line");
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 } };
    const options: uPlot.Options = {
      width,
      height,
      legend: { show: false },
      padding: [8, 32, 0, 0],
      scales: {
        x: { time: false },
        y: {
          range: (_, low, high) => {
            const top = Math.max(high ?? 0, given.current.atLeast ?? 0);
            return [Math.min(0, low ?? 0), top > 0 ? top * 1.05 : 1];
          },
        },
      },
      cursor: {
        points: { size: 6 },
        drag: { x: !!props.onRange, y: false, setScale: false },
      },
      series: [
        {},
        ...curves.map((curve, index) => {
          const stroke = colour(element, curve.colour ?? SERIES[index % SERIES.length]!);
          const made: uPlot.Series = {
            stroke,
            width: 1.5,
            // steps of vertical lines are unreadable with gaps
            dash: curve.fill || props.stepped ? [] : DASHES[index % DASHES.length]!,
            spanGaps: false,
            points: { show: !!props.points || x.length === 1, size: 4 },
          };
          if (curve.fill) made.fill = colour(element, "--chart-fill");
          if (props.stepped) made.paths = uPlot.paths.stepped!({ align: 1 });
          return made;
        }),
      ],
      axes: [
        {
          ...axis,
          size: 28,
          space: 80,
          ticks: { stroke: line, size: 4 },
          values: (_, splits) => splits.map((value) => given.current.showX(value)),
        },
        {
          ...axis,
          size: 66,
          space: 32,
          ticks: { show: false },
          values: (_, splits) => splits.map((value) => given.current.show(value)),
        },
      ],
      hooks: {
        setCursor: [(one) => setAt(one.cursor.idx ?? null)],
        setSelect: [
          (one) => {
            if (one.select.width < 4) return;
            const from = one.posToVal(one.select.left, "x");
            const to = one.posToVal(one.select.left + one.select.width, "x");
            one.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            given.current.onRange?.(from, to);
          },
        ],
        draw: [(one) => drawMarks(one, given.current.marks ?? [], ink)],
      },
    };
    const made = new uPlot(options, [x, ...curves.map((curve) => curve.values)], element);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [width, theme, x, curves, height, props.stepped, props.points, props.marks]);
  if (!x.length) return null;
  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -x.length, End: x.length }[event.key];
    if (event.key === "Enter" && at !== null && props.onPick) props.onPick(at);
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(x.length - 1, Math.max(0, (at ?? (step > 0 ? -1 : x.length)) + step));
    setAt(next);
    const one = plot.current;
    one?.setCursor({ left: one.valToPos(x[next]!, "x"), top: 10 }, false);
  };
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        <Legend curves={curves} at={at} show={show} solid={!!props.stepped} />
        <span class="chart-at" aria-live="polite">
          {at !== null && x[at] !== undefined ? `${props.xName ?? "at"} ${showX(x[at])}` : ""}
        </span>
      </figcaption>
      <div
        class={props.onPick ? "plot pickable" : "plot"}
        ref={place}
        tabIndex={0}
        role="img"
        aria-label={`${title}: ${x.length} points; the arrow keys read them`}
        onKeyDown={move}
        onBlur={() => setAt(null)}
        onClick={() => at !== null && props.onPick?.(at)}
      />
      {props.note && <p class="chart-note">{props.note}</p>}
      <InWords
        head={[props.xName ?? "at", ...curves.map((curve) => curve.name)]}
        many={x.length}
        row={(index) => [
          showX(x[index]!),
          ...curves.map((curve) => shown(curve.values[index], show)),
        ]}
      />
    </figure>
  );
}

function shown(value: Known | undefined, show: (value: number) => string): string {
  return value === null || value === undefined ? "unknown" : show(value);
}

function Legend(props: { curves: Curve[]; at: number | null; show: (value: number) => string; solid: boolean }) {
  return (
    <span class="chart-legend">
      {props.curves.map((curve, index) => (
        <span key={curve.name} class="chart-key">
          <i
            class={curve.fill ? "swatch" : `swatch line dash-${props.solid ? 0 : index % DASHES.length}`}
            style={{ "--swatch": `var(${curve.colour ?? SERIES[index % SERIES.length]})` }}
          />
          {curve.name}
          {props.at !== null && <b> {shown(curve.values[props.at], props.show)}</b>}
        </span>
      ))}
    </span>
  );
}

function drawMarks(one: uPlot, marks: Mark[], ink: string): void {
  const { ctx, bbox } = one;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.strokeStyle = ctx.fillStyle = ink;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  for (const mark of marks) {
    const left = one.valToPos(mark.x, "x", true);
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(mark.label).width;
    const right = left + wide + 6 * ratio < bbox.left + bbox.width;
    ctx.fillText(mark.label, right ? left + 4 * ratio : left - wide - 4 * ratio, bbox.top + bbox.height - 5 * ratio);
  }
  ctx.restore();
}

/** A chart's figures as a table, made when it is opened. */
export function InWords(props: {
  head: string[];
  many: number;
  row: (index: number) => ComponentChildren[];
}) {
  const [open, setOpen] = useState(false);
  const rows = Math.min(props.many, ROWS);
  return (
    <details class="in-words" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>as a table</summary>
      {open && (
        <div class="scrolled">
          <table>
            <thead>
              <tr>
                {props.head.map((name) => (
                  <th key={name}>{name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {Array.from({ length: rows }, (_, index) => (
                <tr key={index}>
                  {props.row(index).map((cell, column) => (
                    <td key={column}>{cell}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
          {props.many > rows && <p>{(props.many - rows).toLocaleString("en")} more are not listed here.</p>}
        </div>
      )}
    </details>
  );
}

export interface Dot {
  x: number;
  y: number;
  label: string;
  /** Lines of the tooltip. */
  text: string[];
  /** Share of the time, which sets the area. */
  weight: number;
  colour?: string;
}

export interface Roof {
  name: string;
  /** The two ends of a straight line on log axes. */
  from: { x: number; y: number };
  to: { x: number; y: number };
  dashed?: boolean;
}

export interface ScatterProps {
  title: string;
  dots: Dot[];
  roofs?: Roof[];
  xName: string;
  yName: string;
  showX: (x: number) => string;
  showY: (y: number) => string;
  height?: number;
  onPick?: (index: number) => void;
  chosen?: number | null;
  legend?: { name: string; colour: string }[];
  note?: ComponentChildren;
}

/** Points on two logarithmic axes, with roofs; arrow keys go from point to point in their order. */
export function Scatter(props: ScatterProps) {
  const { dots, roofs = [], height = 320 } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const given = useRef(props);
  given.current = props;
  const width = useWidth(place);
  const theme = useTheme();
  const [at, setAt] = useState<number | null>(null);
  const hovered = useRef<number | null>(null);
  const order = useMemo(() => dots.map((_, i) => i).sort((a, b) => dots[a]!.x - dots[b]!.x), [dots]);
  useEffect(() => {
    const element = place.current;
    if (!element || !width || !dots.length) return;
    const ends = roofs.flatMap((roof) => [roof.from, roof.to]);
    const all = [...dots, ...ends];
    const decades = (values: number[]): [number, number] => [
      10 ** Math.floor(Math.log10(Math.min(...values)) - 0.05),
      10 ** Math.ceil(Math.log10(Math.max(...values)) + 0.05),
    ];
    const spanX = decades(all.map((one) => one.x));
    const spanY = decades(all.map((one) => one.y));
    const ink = colour(element, "--quiet");
    const line = colour(element, "--line");
    const decade = (value: number) => Math.abs(Math.log10(value) % 1) < 1e-6;
    const only = (_: uPlot, splits: number[]) => splits.map((value) => (decade(value) ? value : null));
    // of a log axis only the decades have lines and names
    const axis = {
      stroke: ink,
      font: "11px system-ui, sans-serif",
      grid: { stroke: line, width: 1, filter: only },
      ticks: { show: false },
    };
    const named = (splits: number[], text: (value: number) => string) =>
      splits.map((value) => (decade(value) ? text(value) : null));
    const options: uPlot.Options = {
      width,
      height,
      legend: { show: false },
      padding: [10, 40, 0, 0],
      scales: {
        x: { time: false, distr: 3, range: () => spanX },
        y: { distr: 3, range: () => spanY },
      },
      cursor: { points: { show: false }, drag: { x: false, y: false }, x: false, y: false },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [
        { ...axis, size: 28, space: 44, values: (_, splits) => named(splits, given.current.showX) as string[] },
        { ...axis, size: 78, space: 24, values: (_, splits) => named(splits, given.current.showY) as string[] },
      ],
      hooks: {
        draw: [(one) => drawDots(one, element, given.current, hovered.current)],
        setCursor: [
          (one) => {
            const { left, top } = one.cursor;
            if (left === undefined || top === undefined || left < 0 || top < 0) return pick(null);
            let best: number | null = null;
            let least = 24 * 24;
            given.current.dots.forEach((dot, index) => {
              const across = one.valToPos(dot.x, "x") - left;
              const down = one.valToPos(dot.y, "y") - top;
              const far = across * across + down * down;
              if (far < least) [best, least] = [index, far];
            });
            pick(best);
          },
        ],
      },
    };
    const made = new uPlot(
      options,
      [order.map((index) => dots[index]!.x), order.map((index) => dots[index]!.y)],
      element,
    );
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [width, theme, dots, roofs, height]);
  useEffect(() => {
    plot.current?.redraw(false, false);
  }, [props.chosen]);
  const pick = (index: number | null) => {
    if (hovered.current === index) return;
    hovered.current = index;
    setAt(index);
    plot.current?.redraw(false, false);
  };
  if (!dots.length) return null;
  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter" && at !== null) props.onPick?.(at);
    if (step === undefined) return;
    event.preventDefault();
    const now = at === null ? (step > 0 ? -1 : order.length) : order.indexOf(at);
    pick(order[Math.min(order.length - 1, Math.max(0, now + step))]!);
  };
  const dot = at === null ? null : dots[at];
  const one = plot.current;
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{props.title}</span>
        <span class="chart-legend">
          {(props.legend ?? []).map((key) => (
            <span key={key.name} class="chart-key">
              <i class="swatch dot" style={{ "--swatch": `var(${key.colour})` }} />
              {key.name}
            </span>
          ))}
        </span>
      </figcaption>
      <div
        class={props.onPick ? "plot pickable" : "plot"}
        ref={place}
        tabIndex={0}
        role="img"
        aria-label={`${props.title}: ${dots.length} points; the arrow keys read them`}
        onKeyDown={move}
        onBlur={() => pick(null)}
        onClick={() => at !== null && props.onPick?.(at)}
      >
        {dot && one && (
          <Tip
            left={one.valToPos(dot.x, "x") + one.over.offsetLeft}
            top={one.valToPos(dot.y, "y") + one.over.offsetTop}
            width={width}
            lines={[dot.label, ...dot.text]}
          />
        )}
      </div>
      <p class="axes-names">
        {props.yName} (upwards) against {props.xName} (to the right), both logarithmic
      </p>
      {props.note && <p class="chart-note">{props.note}</p>}
      <InWords
        head={["", props.xName, props.yName]}
        many={dots.length}
        row={(index) => {
          const one = dots[index]!;
          return [one.label, props.showX(one.x), props.showY(one.y)];
        }}
      />
    </figure>
  );
}

function drawDots(one: uPlot, element: Element, props: ScatterProps, hovered: number | null): void {
  const { ctx, bbox } = one;
  const ratio = devicePixelRatio;
  const ink = colour(element, "--ink");
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  const taken: number[] = [];
  for (const roof of props.roofs ?? []) {
    const [x1, y1, x2, y2] = [
      one.valToPos(roof.from.x, "x", true),
      one.valToPos(roof.from.y, "y", true),
      one.valToPos(roof.to.x, "x", true),
      one.valToPos(roof.to.y, "y", true),
    ];
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.lineWidth = ratio;
    ctx.setLineDash(roof.dashed ? [4 * ratio, 4 * ratio] : []);
    ctx.beginPath();
    ctx.moveTo(x1, y1);
    ctx.lineTo(x2, y2);
    ctx.stroke();
    ctx.save();
    if (Math.abs(y2 - y1) < 2) {
      // roofs that are near one another have their names one above the other
      let top = y1 - 4 * ratio;
      while (taken.some((other) => Math.abs(other - top) < 12 * ratio)) top += 13 * ratio;
      taken.push(top);
      ctx.textAlign = "right";
      ctx.fillText(roof.name, Math.min(x2, bbox.left + bbox.width) - 4 * ratio, top);
    } else {
      const slope = Math.atan2(y2 - y1, x2 - x1);
      ctx.translate(x1 + (x2 - x1) * 0.3, y1 + (y2 - y1) * 0.3);
      ctx.rotate(slope);
      ctx.textAlign = "center";
      ctx.fillText(roof.name, 0, -5 * ratio);
    }
    ctx.restore();
  }
  ctx.setLineDash([]);
  // the large first, so that they hide no small one
  const order = props.dots.map((_, index) => index);
  order.sort((a, b) => props.dots[b]!.weight - props.dots[a]!.weight);
  for (const index of order) {
    const dot = props.dots[index]!;
    const radius = (3 + 15 * Math.sqrt(Math.max(0, Math.min(1, dot.weight)))) * ratio;
    ctx.beginPath();
    ctx.arc(one.valToPos(dot.x, "x", true), one.valToPos(dot.y, "y", true), radius, 0, 2 * Math.PI);
    ctx.globalAlpha = 0.55;
    ctx.fillStyle = colour(element, dot.colour ?? SERIES[0]!);
    ctx.fill();
    ctx.globalAlpha = 1;
    const strong = index === hovered || index === props.chosen;
    ctx.lineWidth = (strong ? 2.5 : 1) * ratio;
    ctx.strokeStyle = strong ? ink : ctx.fillStyle;
    ctx.stroke();
  }
  ctx.restore();
}

/** A tooltip inside a positioned element, kept within its width. */
export function Tip(props: { left: number; top: number; width: number; lines: string[] }) {
  const right = props.left > props.width / 2;
  return (
    <div
      class="tip"
      role="status"
      style={
        right
          ? { right: `${Math.max(0, props.width - props.left + 12)}px`, top: `${props.top + 12}px` }
          : { left: `${Math.max(0, props.left + 12)}px`, top: `${props.top + 12}px` }
      }
    >
      {props.lines.map((line, index) => (index ? <div key={index}>{line}</div> : <b key={index}>{line}</b>))}
    </div>
  );
}

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
          return (
            <li key={index} title={bar.title ?? `${bar.name}: ${text}`}>
              <span class="bar-name">{bar.href ? <a href={bar.href}>{bar.name}</a> : bar.name}</span>
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
            {part.name} <b>{((part.value / whole) * 100).toFixed(1)} %</b> {props.show(part.value)}
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** Cells of rows and columns by strength, each with its value as text for the pointer and the reader. */
export function HeatMap(props: {
  title: string;
  rows: string[];
  columns: string[];
  /** Row by row. */
  values: Known[][];
  show: (value: number) => string;
  rowName: string;
  columnName: string;
}) {
  const most = Math.max(...props.values.flat().map((value) => value ?? 0), Number.MIN_VALUE);
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{props.title}</span>
        <span class="chart-legend">
          rows: {props.rowName}; columns: {props.columnName}
        </span>
      </figcaption>
      <div class="scrolled">
        <table class="heat">
          <thead>
            <tr>
              <th />
              {props.columns.map((name) => (
                <th key={name}>{name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {props.rows.map((name, row) => (
              <tr key={name}>
                <th>{name}</th>
                {props.columns.map((column, index) => {
                  const value = props.values[row]?.[index] ?? null;
                  return (
                    <td
                      key={column}
                      class={value === null ? "none" : value / most > 0.55 ? "strong" : ""}
                      style={{ "--strength": `${value === null ? 0 : Math.round((value / most) * 100)}%` }}
                      title={`${name}, ${column}: ${value === null ? "nothing" : props.show(value)}`}
                    >
                      {value === null ? "" : props.show(value)}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}
