// A flame graph on a canvas: zoom on click, keys, search with the share of what matches, and a tree in words.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Tip } from "./charts/tip";
import { colour, useWidth } from "./canvas";
import { useTheme } from "./theme";
import { variableOf } from "./colours";
import { apart, type FlameAnswer, familyOf, labelOf, matching, nameOf, neighbour, path, seen, type Seen, type Tree, treeOf } from "./flame_layout";
import { exact, show, visible } from "./format";
import { Jump, lineOf } from "./jump";
import { hrefOf } from "../state";

const ROW = 20;
/** Frames narrower than this many pixels are not drawn; they are inside what is around them. */
const LEAST = 0.75;
/** Characters of a name whose width is measured: no frame has room for more. */
const MEASURED = 300;

const MEASURES = {
  device: "device time",
  self: "the ops' own time, without a GPU",
  host: "time on the host: kernels were not captured",
};

export interface FlameProps {
  answer: FlameAnswer;
  /** What the frames are, for the text: "Steps, layers, ops and kernels". */
  title: string;
  search: string;
  /** The node that takes the whole width, from the address. */
  zoomed: number;
  onZoom: (node: number) => void;
}

export function Flame({ answer, title, search, zoomed, onZoom }: FlameProps) {
  const tree = useMemo(() => treeOf(answer), [answer]);
  const found = useMemo(() => matching(tree, search), [tree, search]);
  const at = zoomed < tree.parent.length && zoomed >= 0 ? zoomed : 0;
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(place);
  const theme = useTheme();
  const [hovered, setHovered] = useState<number | null>(null);
  const [focused, setFocused] = useState<number | null>(null);
  const frames = useMemo(() => (width ? seen(tree, at, LEAST / width) : []), [tree, at, width]);
  const rows = frames.reduce((most, frame) => Math.max(most, frame.row + 1), 1);
  const told = hovered ?? focused;

  useEffect(() => {
    const element = canvas.current;
    if (!element || !width) return;
    const ratio = devicePixelRatio;
    element.width = Math.round(width * ratio);
    element.height = Math.round(rows * ROW * ratio);
    const context = element.getContext("2d");
    if (context) {
      context.scale(ratio, ratio);
      draw(context, tree, frames, width, { hit: search ? found.hit : null, told, zoomed: at }, element);
    }
  }, [frames, width, theme, found, told, at]);

  if (!tree.parent.length) return null;
  const frameAt = (event: MouseEvent): number | null => {
    const box = canvas.current!.getBoundingClientRect();
    const x = (event.clientX - box.left) / width;
    const row = Math.floor((event.clientY - box.top) / ROW);
    const hit = frames.find((frame) => frame.row === row && x >= frame.left && x < frame.left + frame.width);
    return hit ? hit.node : null;
  };
  const keyed = (event: KeyboardEvent) => {
    const now = focused ?? at;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      setHovered(null);
      setFocused(focused === null ? at : neighbour(tree, now, event.key));
    } else if (event.key === "Enter") {
      event.preventDefault();
      onZoom(now);
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      onZoom(at === 0 ? 0 : tree.parent[at]!);
      setFocused(null);
    } else if (event.key === "Home") {
      event.preventDefault();
      onZoom(0);
    }
  };
  const chosen = told === null ? undefined : frames.find((frame) => frame.node === told);
  const whole = tree.time[0]!;
  return (
    <figure class="chart flame">
      <figcaption>
        <span class="chart-title">{title}</span>
        <span class="chart-legend">
          {show(whole, "ns")} of {MEASURES[tree.measure]}
          {search && (
            <b title={exact(found.time, "ns")}>
              “{visible(search)}”: {show(whole ? found.time / whole : 0, "fraction")} ({show(found.time, "ns")})
            </b>
          )}
        </span>
        {at !== 0 && (
          <button type="button" class="flame-reset" onClick={() => onZoom(0)}>
            Show all
          </button>
        )}
      </figcaption>
      <div
        class="flame-place"
        ref={place}
        tabIndex={0}
        role="application"
        aria-label={`Flame graph: ${title}. Arrow keys go from frame to frame, Enter zooms, Escape goes back; the tree below has the same figures.`}
        onKeyDown={keyed}
        onFocus={() => setFocused((now) => now ?? at)}
        onBlur={() => setFocused(null)}
        onMouseMove={(event) => setHovered(frameAt(event))}
        onMouseLeave={() => setHovered(null)}
        onClick={(event) => {
          const node = frameAt(event);
          if (node !== null) onZoom(node);
        }}
      >
        <canvas ref={canvas} style={{ height: `${rows * ROW}px` }} />
        {chosen && (
          <Tip
            left={Math.max(0, chosen.left) * width}
            top={(chosen.row + 0.6) * ROW}
            width={width}
            lines={lines(tree, chosen.node, at)}
          />
        )}
      </div>
      <div class="sr" aria-live="polite">
        {focused !== null && lines(tree, focused, at).join(", ")}
      </div>
      <Path tree={tree} node={at} onZoom={onZoom} />
      <InWords tree={tree} />
    </figure>
  );
}

function lines(tree: Tree, node: number, zoomed: number): string[] {
  const time = tree.time[node]!;
  const own = tree.own[node]!;
  const calls = tree.calls[node];
  const found = [
    visible(nameOf(tree, node)),
    `${tree.kind[node] === "all" ? "the whole" : tree.kind[node]} · ${show(time, "ns")} (${exact(time, "ns")})`,
    `${show(time / tree.time[0]!, "fraction")} of all`,
  ];
  if (zoomed !== 0 && zoomed !== node) found.push(`${show(time / tree.time[zoomed]!, "fraction")} of what is zoomed`);
  if (own && own !== time) found.push(`own ${show(own, "ns")} (${exact(own, "ns")})`);
  if (calls !== null && calls !== undefined) found.push(`${exact(calls, "count")} times`);
  if (tree.kind[node] === "other") found.push("paths that are too small to draw, added up");
  return found;
}

interface Drawn {
  hit: boolean[] | null;
  told: number | null;
  zoomed: number;
}

function draw(
  context: CanvasRenderingContext2D,
  tree: Tree,
  frames: Seen[],
  width: number,
  how: Drawn,
  element: Element,
): void {
  const colours = new Map<string, string>();
  const value = (name: string) => {
    let found = colours.get(name);
    if (found === undefined) colours.set(name, (found = colour(element, name)));
    return found;
  };
  const ink = value("--ink");
  const ground = value("--flame-ground");
  context.clearRect(0, 0, width, element.clientHeight + ROW);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const from = apartOf(tree);
  for (const frame of frames) {
    const left = frame.left * width;
    const wide = Math.max(frame.width * width, LEAST);
    const top = frame.row * ROW;
    const dim = how.hit !== null && !how.hit[frame.node];
    context.globalAlpha = dim ? 0.18 : tree.depth[frame.node]! < tree.depth[how.zoomed]! ? 0.5 : 1;
    context.fillStyle = value(variable(tree, frame.node));
    const gap = wide > 3 ? 1 : 0;
    context.fillRect(left, top, wide - gap, ROW - 1);
    // the ground over the colour, so that text is read on it in every family
    context.globalAlpha *= 0.62;
    context.fillStyle = ground;
    context.fillRect(left, top, wide - gap, ROW - 1);
    context.globalAlpha = dim ? 0.55 : 1;
    if (frame.node === how.told) {
      context.strokeStyle = ink;
      context.lineWidth = 1.5;
      context.strokeRect(left + 0.75, top + 0.75, Math.max(wide - gap - 1.5, 1), ROW - 2.5);
    }
    if (wide > 28) {
      context.fillStyle = ink;
      const text = fitted(context, visible(nameOf(tree, frame.node)), wide - 8, from[frame.node]!);
      if (text) context.fillText(text, left + 4, top + ROW / 2);
    }
  }
  context.globalAlpha = 1;
}

const known = new WeakMap<Tree, number[]>();

function apartOf(tree: Tree): number[] {
  let from = known.get(tree);
  if (!from) known.set(tree, (from = apart(tree)));
  return from;
}

function variable(tree: Tree, node: number): string {
  const kind = tree.kind[node]!;
  if (kind === "op" || kind === "kernel" || kind === "copy") {
    return variableOf(familyOf(tree, node) ?? (kind === "copy" ? "copies" : null));
  }
  if (kind === "reason" || kind === "outside" || kind === "other") return variableOf("outside any op");
  return "--flame-plain";
}

/** Returns as much of a name as fits in `room` px, with what distinguishes it from its siblings; nothing if that is too little. */
function fitted(context: CanvasRenderingContext2D, name: string, room: number, from: number): string {
  const wide = context.measureText(name.slice(0, MEASURED)).width;
  if (name.length <= MEASURED && wide <= room) return name;
  for (let most = Math.ceil((Math.min(name.length, MEASURED) * room) / wide) + 2; most >= 4; most--) {
    const label = labelOf(name, most, from);
    if (context.measureText(label).width <= room) return label;
  }
  return "";
}

/** The page about what a frame is. */
function linkOf(tree: Tree, node: number): string | null {
  const name = tree.names[tree.name[node]!]!;
  const link = tree.link[node];
  const kind = tree.kind[node];
  if (kind === "layer" && link) return hrefOf("layers", { layer: link });
  if (kind === "source" && link) return hrefOf("source", { source: link });
  if (kind === "op") return hrefOf("operators", { op: name });
  if (kind === "kernel") return hrefOf("kernels", { kernel: name });
  return null;
}

function Path(props: { tree: Tree; node: number; onZoom: (node: number) => void }) {
  const { tree, node } = props;
  const link = linkOf(tree, node);
  if (node === 0) return <p class="chart-note">Click a frame to zoom. Colours are the families of ops.</p>;
  return (
    <p class="flame-path">
      {path(tree, node).map((one) => (
        <span key={one}>
          <button type="button" class="plain" onClick={() => props.onZoom(one)} aria-current={one === node ? "true" : undefined}>
            {visible(nameOf(tree, one)).slice(0, 120)}
          </button>
          {one !== node && " › "}
        </span>
      ))}{" "}
      <b title={exact(tree.time[node], "ns")}>
        {show(tree.time[node], "ns")}, {show(tree.time[node]! / tree.time[0]!, "fraction")}
      </b>
      {link && (
        <>
          {" · "}
          <a href={link}>open this {tree.kind[node]}</a>
          {tree.kind[node] === "source" && tree.link[node] && <Jump line={lineOf(tree.link[node]!)} />}
        </>
      )}
    </p>
  );
}

function InWords({ tree }: { tree: Tree }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="in-words" onToggle={(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
      <summary>as a tree in words</summary>
      {open && (
        <ul class="flame-tree">
          <Branch tree={tree} node={0} open />
        </ul>
      )}
    </details>
  );
}

const SIBLINGS = 40;

function Branch({ tree, node, open: first }: { tree: Tree; node: number; open?: boolean }) {
  const [open, setOpen] = useState(!!first);
  const [most, setMost] = useState(SIBLINGS);
  const inner = tree.children[node]!;
  const line = (
    <>
      {visible(nameOf(tree, node)).slice(0, 200)}{" "}
      <b title={exact(tree.time[node], "ns")}>{show(tree.time[node], "ns")}</b>{" "}
      {show(tree.time[node]! / tree.time[0]!, "fraction")}
    </>
  );
  if (!inner.length) return <li>{line}</li>;
  return (
    <li>
      <details
        open={first ?? false}
        onToggle={(event) => {
          event.stopPropagation();
          setOpen(event.currentTarget.open);
        }}
      >
        <summary>{line}</summary>
        {open && (
          <ul>
            {inner.slice(0, most).map((one) => (
              <Branch key={one} tree={tree} node={one} />
            ))}
            {inner.length > most && (
              <li>
                <button type="button" onClick={() => setMost(most + SIBLINGS)}>
                  {inner.length - most} more
                </button>
              </li>
            )}
          </ul>
        )}
      </details>
    </li>
  );
}
