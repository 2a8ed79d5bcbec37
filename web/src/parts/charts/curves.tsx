// Curves over one axis, on uPlot; the pointer or the arrow keys read the values at a place.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./charts.css";
import { colour, useWidth } from "../canvas";
import { useTheme } from "../theme";
import { InWords } from "./in_words";
import { type Known, SERIES } from "./series";

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
