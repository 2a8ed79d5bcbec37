// Points on two logarithmic axes under roofs, on uPlot.
import { decades } from "./decades";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./charts.css";
import { colour, useWidth } from "../canvas";
import { useTheme } from "../theme";
import { InWords } from "./in_words";
import { SERIES } from "./series";
import { Tip } from "./tip";

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
    const spanX = decades(dots.map((one) => one.x), ends.map((one) => one.x));
    const spanY = decades(dots.map((one) => one.y), ends.map((one) => one.y));
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
  const ground = colour(element, "--paper");
  // the lines of the grid do not go through a name
  const onGround = (text: string, x: number, y: number): void => {
    ctx.setLineDash([]);
    ctx.lineWidth = 4 * ratio;
    ctx.strokeStyle = ground;
    ctx.strokeText(text, x, y);
    ctx.fillText(text, x, y);
  };
  for (const roof of props.roofs ?? []) {
    const level = roof.from.y === roof.to.y;
    const [x1, y1, x2, y2] = [
      one.valToPos(roof.from.x, "x", true),
      one.valToPos(roof.from.y, "y", true),
      // a level roof has no end: its name stands at the edge, where no point is
      level ? bbox.left + bbox.width : one.valToPos(roof.to.x, "x", true),
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
    if (level) {
      // roofs that are near one another have their names one above the other
      let top = y1 - 5 * ratio;
      while (taken.some((other) => Math.abs(other - top) < 12 * ratio)) top += 18 * ratio;
      taken.push(top);
      ctx.textAlign = "right";
      onGround(roof.name, Math.min(x2, bbox.left + bbox.width) - 4 * ratio, top);
    } else {
      const slope = Math.atan2(y2 - y1, x2 - x1);
      ctx.translate(x1 + (x2 - x1) * 0.3, y1 + (y2 - y1) * 0.3);
      ctx.rotate(slope);
      ctx.textAlign = "center";
      onGround(roof.name, 0, -5 * ratio);
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
