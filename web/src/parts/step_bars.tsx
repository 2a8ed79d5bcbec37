// A column for each step, divided by what the process did; dragging over columns selects a range of steps.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { setParams } from "../state";
import { colourOf } from "./colours";
import { exact, numeric, share, show } from "./format";
import { timelineOf } from "./name";
import type { Row } from "./rows";
import "./step_bars.css";

/** The parts from the bottom up: they divide each moment of the step. */
const PARTS: [string, string][] = [
  ["kernel_part", "kernels"],
  ["communication_part", "communication"],
  ["copy_part", "copies"],
  ["set_part", "sets"],
  ["runtime_part", "runtime"],
  ["loader_part", "data loader"],
  ["op_part", "CPU ops"],
  ["other_part", "other"],
];
const TALL = 190;
const AXIS = 18;
/** The least px of a column; with more steps, a column is the slowest of several. */
const LEAST = 3;

interface Props {
  rows: Row[];
  range: [number, number] | null;
  step: number | null;
  live: boolean;
  /** Only so many steps were read, if not all. */
  cut: number | null;
}

interface Column {
  /** Rows it stands for, and the slowest of them. */
  from: number;
  to: number;
  row: Row;
}

function columnsOf(rows: Row[], width: number): Column[] {
  const each = Math.max(1, Math.ceil(rows.length / Math.max(1, Math.floor(width / LEAST))));
  const made: Column[] = [];
  for (let from = 0; from < rows.length; from += each) {
    const to = Math.min(from + each, rows.length) - 1;
    let row = rows[from]!;
    for (let at = from; at <= to; at++) if ((numeric(rows[at]!["time"]) ?? 0) > (numeric(row["time"]) ?? 0)) row = rows[at]!;
    made.push({ from, to, row });
  }
  return made;
}

export function StepBars({ rows, range, step, live, cut }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const [over, setOver] = useState<number | null>(null);
  const [drag, setDrag] = useState<[number, number] | null>(null);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);

  const columns = columnsOf(rows, width);
  const most = Math.max(1, ...columns.map((column) => numeric(column.row["time"]) ?? 0));
  const wide = Math.min(48, width / columns.length);
  const drawn = PARTS.filter(([name]) => columns.some((column) => (numeric(column.row[name]) ?? 0) > 0));
  const divided = drawn.length > 0;
  const low = drag ? Math.min(...drag) : null;
  const high = drag ? Math.max(...drag) : null;
  const number = (index: number) => Number(rows[index]!["step"]);

  const at = (event: PointerEvent) => {
    const left = box.current!.getBoundingClientRect().left;
    return Math.max(0, Math.min(columns.length - 1, Math.floor((event.clientX - left) / wide)));
  };
  const choose = (one: number, other: number) => {
    if (!live) return;
    const [first, last] = [columns[Math.min(one, other)]!, columns[Math.max(one, other)]!];
    setParams({ steps: `${number(first.from)}-${number(last.to)}` }, false);
  };
  const press = (event: KeyboardEvent) => {
    const now = over ?? 0;
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: columns.length - 1 }[event.key];
    if (to !== undefined) {
      const next = Math.max(0, Math.min(columns.length - 1, to));
      setOver(next);
      setDrag(event.shiftKey ? [drag?.[0] ?? now, next] : null);
    } else if (event.key === "Enter") {
      choose(...(drag ?? [now, now]));
      setDrag(null);
    } else if (event.key === "Escape") {
      setDrag(null);
      if (range) setParams({ steps: undefined }, false);
    } else return;
    event.preventDefault();
  };
  const shownNow = columns[over ?? -1] ?? columns.find((column) => Number(column.row["step"]) === step);

  return (
    <figure class="step-bars">
      <figcaption>
        <span class="legend">
          {divided ? (
            drawn.map(([name, text]) => (
              <span key={name}>
                <span class="swatch" style={{ background: colourOf(name) }} />
                {text}
              </span>
            ))
          ) : (
            <span class="quiet">what steps are made of is not known{rows[0]?.["reason"] ? `: ${String(rows[0]["reason"])}` : ""}</span>
          )}
          {rows.some((row) => row["slow"] === true) && <span>▾ slow</span>}
          {rows.some((row) => row["warm_up"] === true) && <span>w warm-up</span>}
        </span>
        {range && live && (
          <button type="button" onClick={() => setParams({ steps: undefined }, false)}>
            All steps
          </button>
        )}
      </figcaption>
      <div class="step-plot">
        <div class="step-scale" aria-hidden="true">
          <span>{show(most, "ns")}</span>
          <span>{show(most / 2, "ns")}</span>
          <span>0</span>
        </div>
        <div
          ref={box}
          class={`step-columns${live ? " live" : ""}`}
          role="slider"
          tabIndex={0}
          aria-label="Steps: arrows move, Shift with arrows extends a range, Enter selects it for all pages, Escape selects all"
          aria-valuemin={0}
          aria-valuemax={columns.length - 1}
          aria-valuenow={over ?? 0}
          aria-valuetext={shownNow ? words(shownNow, rows) : "no step"}
          onKeyDown={press}
          onPointerMove={(event) => {
            const now = at(event);
            setOver(now);
            if (drag && event.buttons) setDrag([drag[0], now]);
          }}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            const now = at(event);
            event.currentTarget.setPointerCapture(event.pointerId);
            setDrag([now, now]);
          }}
          onPointerUp={() => {
            if (drag) {
              if (drag[0] !== drag[1]) choose(...drag);
              else setParams({ step: String(columns[drag[0]]!.row["step"]) });
            }
            setDrag(null);
          }}
          onPointerCancel={() => setDrag(null)}
        >
          <svg width={width} height={TALL + AXIS} aria-hidden="true">
            {[0, 0.5].map((line) => (
              <line key={line} class="rule" x1={0} x2={width} y1={10 + line * (TALL - 10)} y2={10 + line * (TALL - 10)} />
            ))}
            {columns.map((column, index) => {
              const first = number(column.from);
              const last = number(column.to);
              const out = range !== null && (last < range[0] || first > range[1]);
              const inDrag = low !== null && high !== null && low !== high && index >= low && index <= high;
              return <Bar key={index} column={column} x={index * wide} wide={wide} most={most} divided={divided} out={out} marked={index === over || inDrag || Number(column.row["step"]) === step} />;
            })}
            {ticks(columns.length, wide).map((index) => (
              <text key={index} x={index * wide + wide / 2} y={TALL + AXIS - 3}>
                {String(columns[index]!.row["step"])}
                {columns[index]!.row["warm_up"] === true ? " w" : ""}
              </text>
            ))}
          </svg>
        </div>
      </div>
      <p class="step-said">
        {shownNow ? (
          <>
            {words(shownNow, rows)}{" "}
            <a href={timelineOf(String(shownNow.row["start"]), String(shownNow.row["end"]))}>on the timeline</a>
          </>
        ) : (
          <span class="quiet">{live ? "Drag over steps to select them for all pages; click one to see its phases." : "Click a step to see its phases."}</span>
        )}
      </p>
      {columns.length < rows.length && (
        <p class="quiet">
          Each column is the slowest of {columns[0]!.to - columns[0]!.from + 1} steps that follow each other.
          {cut !== null && ` The first ${cut.toLocaleString("en")} steps are drawn; the table has all.`}
        </p>
      )}
    </figure>
  );
}

function Bar({ column, x, wide, most, divided, out, marked }: { column: Column; x: number; wide: number; most: number; divided: boolean; out: boolean; marked: boolean }) {
  const { row } = column;
  const gap = wide > 5 ? 1 : 0;
  const scale = (TALL - 10) / most;
  const whole = numeric(row["time"]) ?? 0;
  const known = divided && PARTS.some(([name]) => row[name] !== null);
  let y = TALL;
  const parts = known
    ? PARTS.map(([name]) => {
        const tall = (numeric(row[name]) ?? 0) * scale;
        y -= tall;
        return tall > 0 ? <rect key={name} x={x + gap} y={y} width={wide - 2 * gap} height={tall} style={{ fill: colourOf(name) }} /> : null;
      })
    : [<rect key="whole" x={x + gap} y={TALL - whole * scale} width={wide - 2 * gap} height={whole * scale} class={divided ? "unknown-part" : "plain-part"} />];
  return (
    <g class={`${out ? "out" : ""}${marked ? " marked" : ""}`}>
      {marked && <rect class="behind" x={x} y={0} width={wide} height={TALL} />}
      {parts}
      {row["slow"] === true && (
        <text class="mark" x={x + wide / 2} y={Math.max(9, TALL - whole * scale - 2)}>
          ▾
        </text>
      )}
    </g>
  );
}

/** Columns whose number is written under them: as many as fit. */
function ticks(count: number, wide: number): number[] {
  const least = Math.max(1, Math.ceil(52 / wide));
  const each = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].find((one) => one >= least) ?? least;
  return Array.from({ length: Math.ceil(count / each) }, (_, index) => index * each);
}

function words(column: Column, rows: Row[]): string {
  const { row } = column;
  const whole = numeric(row["time"]);
  const several = column.to > column.from ? `, the slowest of ${String(rows[column.from]!["step"])} to ${String(rows[column.to]!["step"])}` : "";
  const parts = PARTS.filter(([name]) => (numeric(row[name]) ?? 0) > 0).map(([name, text]) => `${text} ${show(row[name], "ns")}${whole ? ` (${share(numeric(row[name])! / whole)})` : ""}`);
  const flags = [row["slow"] === true && "slow", row["warm_up"] === true && "warm-up"].filter(Boolean).join(", ");
  return `Step ${String(row["step"])}${several}: ${exact(row["time"], "ns")}${flags ? `, ${flags}` : ""}. ${parts.join(", ")}${parts.length ? "." : ""}`;
}
