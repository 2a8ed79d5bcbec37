// Draws the timeline on a canvas: curves, lanes, ruler, selection, flows.
import { variableOf, valueOf } from "../parts/colours";
import { shortSource, show, time as timeText, visible } from "../parts/format";
import type { Flow, SliceAt } from "./data";
import { type Band, CURVE, RULER } from "./layout";
import { marks } from "./ruler";
import type { CurvePicture, Picture, StripPicture } from "./wire";

/** Categories that are no kind of work. */
const OWN = new Set(["step", "phase", "layer", "range", "python", "graph", "call"]);
const FONT = "11px system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
/** Rows of a strip's picture by columns. */
const TALL = 24;
/** A slice narrower than this has no text, px. */
const TEXT = 26;
/** About how wide a character is, px. */
const CHARACTER = 6.2;

export interface View {
  /** ns from the start of the trace. */
  low: number;
  span: number;
}

interface Colour {
  css: string;
  rgb: number;
  ink: string;
}

export interface Scene {
  width: number;
  height: number;
  gutter: number;
  scroll: number;
  view: View;
  base: bigint;
  bands: Band[];
  picture: Picture | null;
  curves: CurvePicture[];
  names: Map<number, string>;
  query: string;
  hover: SliceAt | null;
  selected: SliceAt | null;
  flows: Flow[];
  /** The span that is added up, ns from the start. */
  mark: [number, number] | null;
}

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private readonly atlas = document.createElement("canvas");
  private placed = new Map<StripPicture, number>();
  private drawnOf: Picture | null = null;
  private colours: Colour[] = [];
  private ink = "";
  private quiet = "";
  private line = "";
  private rule = "";
  private paper = "";
  private panel = "";
  private accent = "";
  /** Names that had room but are not known yet. */
  missing = new Set<number>();

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d")!;
  }

  /** Takes the page's colours; call it when the theme or the categories change. */
  theme(categories: string[]): void {
    this.ink = valueOf("--ink");
    this.quiet = valueOf("--quiet");
    this.line = valueOf("--line");
    this.rule = valueOf("--rule");
    this.paper = valueOf("--paper");
    this.panel = valueOf("--panel");
    this.accent = valueOf("--accent");
    this.colours = categories.map((name) => colour(valueOf(OWN.has(name) ? `--t-${name}` : variableOf(name))));
    this.drawnOf = null;
  }

  draw(scene: Scene): void {
    const ratio = devicePixelRatio || 1;
    const { canvas, context: to } = this;
    const [wide, high] = [Math.round(scene.width * ratio), Math.round(scene.height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
    if (scene.picture !== this.drawnOf) this.prepare(scene.picture);
    this.missing.clear();
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    to.fillStyle = this.paper;
    to.fillRect(0, 0, scene.width, scene.height);
    to.font = FONT;
    to.textBaseline = "middle";
    const grid = marks(scene.view.low, scene.view.span, scene.width - scene.gutter);
    this.grid(scene, grid);
    to.save();
    to.beginPath();
    to.rect(scene.gutter, RULER, scene.width - scene.gutter, scene.height - RULER);
    to.clip();
    for (const band of scene.bands) {
      const y = band.y - scene.scroll;
      if (y > scene.height || y + band.height < RULER) continue;
      if (band.kind === "curve") this.curve(scene, band, y);
      else if (band.kind === "lane") this.lane(scene, band, y);
    }
    this.flows(scene);
    to.restore();
    to.fillStyle = this.line;
    if (scene.gutter) to.fillRect(scene.gutter - 1, 0, 1, scene.height);
    for (const band of scene.bands) {
      const y = band.y - scene.scroll;
      if (band.kind === "heading" && !band.folds && y < scene.height && y + band.height > RULER) this.heading(scene, band.text, y, band.height);
    }
    this.mark(scene);
    this.ruler(scene, grid);
  }

  /** Where a slice is drawn, or would be. */
  place(scene: Scene, at: SliceAt, start: number, end: number): { x: number; right: number; y: number; height: number } | null {
    const band = scene.bands.find((one) => one.kind === "lane" && one.lane.id === at.lane);
    if (band?.kind !== "lane") return null;
    const level = Math.min(at.level, band.strips - 1);
    return { x: x(scene, start), right: x(scene, end), y: band.y - scene.scroll + band.top + level * band.strip, height: band.strip - 1 };
  }

  /** Draws strips by columns once, a row of pixels per 24th of their height; frames then stretch them. */
  private prepare(picture: Picture | null): void {
    this.drawnOf = picture;
    this.placed = new Map();
    if (!picture) return;
    const strips = [...picture.lanes.values()].flat().filter((one) => one.mode === "columns");
    if (!strips.length) return;
    const { columns } = picture;
    this.atlas.width = columns;
    this.atlas.height = strips.length * TALL;
    const context = this.atlas.getContext("2d")!;
    const image = context.createImageData(columns, strips.length * TALL);
    const pixels = new Uint32Array(image.data.buffer);
    strips.forEach((strip, row) => {
      this.placed.set(strip, row * TALL);
      const bottom = (row + 1) * TALL - 1;
      for (let column = 0; column < columns; column++) {
        let sum = 0;
        let y = 0;
        for (let kind = 0; kind < strip.kinds.length; kind++) {
          const share = strip.shares[kind * columns + column]!;
          if (!share) continue;
          sum += share;
          const top = Math.min(TALL, Math.max(y ? 0 : 1, Math.round((sum * TALL) / 255)));
          const rgb = this.colours[strip.kinds[kind]!]?.rgb ?? 0xff888888;
          for (; y < top; y++) pixels[(bottom - y) * columns + column] = rgb;
        }
      }
    });
    context.putImageData(image, 0, 0);
  }

  private grid(scene: Scene, grid: { at: number }[]): void {
    const to = this.context;
    to.fillStyle = this.rule;
    for (const { at } of grid) to.fillRect(Math.round(x(scene, at)), RULER, 1, scene.height);
  }

  private ruler(scene: Scene, grid: { at: number; text: string }[]): void {
    const to = this.context;
    to.fillStyle = this.panel;
    to.fillRect(0, 0, scene.width, RULER);
    to.fillStyle = this.line;
    to.fillRect(0, RULER - 1, scene.width, 1);
    to.save();
    to.beginPath();
    to.rect(scene.gutter, 0, scene.width - scene.gutter, RULER);
    to.clip();
    to.textAlign = "left";
    for (const { at, text } of grid) {
      const place = Math.round(x(scene, at));
      to.fillStyle = this.line;
      to.fillRect(place, 4, 1, RULER - 5);
      to.fillStyle = this.quiet;
      if (place + 4 + to.measureText(text).width <= scene.width) to.fillText(text, place + 4, RULER / 2);
    }
    to.restore();
    if (scene.gutter) {
      to.fillStyle = this.quiet;
      to.textAlign = "left";
      to.fillText(`window: ${timeText(scene.view.span)}`, 8, RULER / 2);
      to.fillStyle = this.line;
      to.fillRect(scene.gutter - 1, 0, 1, RULER);
    }
  }

  private heading(scene: Scene, text: string, y: number, height: number): void {
    const to = this.context;
    to.fillStyle = this.panel;
    to.fillRect(0, y + 1, scene.width, height - 2);
    to.fillStyle = this.ink;
    to.textAlign = "left";
    to.font = `600 ${FONT}`;
    to.fillText(fitted(visible(text), scene.width - 16), 8, y + height / 2);
    to.font = FONT;
  }

  private curve(scene: Scene, band: Band & { kind: "curve" }, y: number): void {
    let number = band.curve;
    const picture = scene.curves.find((one) => (number < one.curves.length ? true : ((number -= one.curves.length), false)));
    const curve = picture?.curves[number];
    if (!picture || !curve) return;
    const to = this.context;
    const begin = Number(picture.start - scene.base);
    const top = curve.most && curve.most > 0 ? curve.most : 1;
    const tall = CURVE - 8;
    const bottom = y + band.height - 4;
    to.fillStyle = this.accent;
    to.globalAlpha = 0.28;
    to.beginPath();
    const outline: [number, number, number][] = [];
    for (let column = 0; column < picture.columns; column++) {
      const value = curve.values[column]!;
      if (Number.isNaN(value)) continue;
      const left = x(scene, begin + (picture.span * column) / picture.columns);
      const right = x(scene, begin + (picture.span * (column + 1)) / picture.columns);
      const height = Math.max(value > 0 ? 0.5 : 0, (Math.max(0, value) / top) * tall);
      to.rect(left, bottom - height, right - left, height);
      outline.push([left, right, bottom - height]);
    }
    to.fill();
    to.globalAlpha = 1;
    to.strokeStyle = this.accent;
    to.lineWidth = 1;
    to.beginPath();
    let last = NaN;
    for (const [left, right, at] of outline) {
      if (left - last < 0.5) to.lineTo(left, at);
      else to.moveTo(left, at);
      to.lineTo(right, at);
      last = right;
    }
    to.stroke();
    to.fillStyle = this.line;
    to.fillRect(scene.gutter, bottom, scene.width - scene.gutter, 1);
    if (!scene.gutter) {
      to.fillStyle = this.ink;
      to.textAlign = "left";
      to.fillText(fitted(`${visible(band.title)}, most ${show(curve.most, curve.unit)}`, scene.width - 8), 4, y + 8);
    }
  }

  private lane(scene: Scene, band: Band & { kind: "lane" }, y: number): void {
    const strips = scene.picture?.lanes.get(band.lane.id);
    if (!strips || !scene.picture) return;
    const begin = Number(scene.picture.start - scene.base);
    for (let level = 0; level < Math.min(band.strips, strips.length); level++) {
      const top = y + band.top + level * band.strip;
      if (top > scene.height || top + band.strip < RULER) continue;
      this.strip(scene, strips[level]!, begin, top, band.strip - 1, band.lane.id, level);
    }
  }

  private strip(scene: Scene, strip: StripPicture, begin: number, y: number, height: number, lane: string, level: number): void {
    const to = this.context;
    const row = this.placed.get(strip);
    if (row !== undefined && scene.picture) {
      const left = x(scene, begin);
      const right = x(scene, begin + scene.picture.span);
      to.imageSmoothingEnabled = false;
      to.drawImage(this.atlas, 0, row, scene.picture.columns, TALL, left, y, right - left, height);
    }
    to.textAlign = "left";
    const selected = scene.selected?.lane === lane && scene.selected.level === level ? scene.selected.index : -1;
    const hover = scene.hover?.lane === lane && scene.hover.level === level ? scene.hover.index : -1;
    const query = scene.query;
    let filled = -Infinity;
    let style = -1;
    for (let place = 0; place < strip.many; place++) {
      const start = begin + strip.start[place]!;
      const left = x(scene, start);
      const right = x(scene, start + strip.lasted[place]!);
      if (right < scene.gutter || left > scene.width) continue;
      const from = Math.max(left, scene.gutter - 2);
      const wide = Math.max(1, Math.min(right, scene.width + 2) - from);
      const index = strip.index(place);
      if (from + wide <= filled && index !== selected) continue; // a slice within a pixel that is drawn
      filled = from + wide;
      const kind = strip.kind[place]!;
      const used = this.colours[kind];
      if (kind !== style) to.fillStyle = used?.css ?? this.quiet;
      style = kind;
      to.fillRect(from, y, wide > 3 ? wide - 0.6 : wide, height);
      if (wide >= TEXT) {
        const id = strip.name[place]!;
        const name = scene.names.get(id);
        if (name === undefined) this.missing.add(id);
        else {
          to.fillStyle = used?.ink ?? this.ink;
          to.fillText(label(visible(name), wide - 6), Math.max(from, scene.gutter) + 3, y + height / 2 + 0.5);
          style = -1;
        }
        if (query && name?.toLowerCase().includes(query)) {
          to.strokeStyle = this.ink;
          to.lineWidth = 1;
          to.strokeRect(from + 0.5, y + 0.5, wide - 1.6, height - 1);
        }
      }
      if (index === selected || index === hover) {
        to.strokeStyle = this.ink;
        to.lineWidth = index === selected ? 2 : 1;
        to.strokeRect(from + 0.5, y + 0.5, Math.max(1, wide - 1.6), height - 1);
      }
    }
  }

  private flows(scene: Scene): void {
    if (!scene.selected || !scene.flows.length) return;
    const to = this.context;
    const self = scene.flows[0]!; // by convention the selected slice itself
    const from = this.place(scene, self, Number(BigInt(self.start) - scene.base), Number(BigInt(self.end) - scene.base));
    if (!from) return;
    to.strokeStyle = this.accent;
    to.lineWidth = 1.2;
    to.globalAlpha = 0.75;
    for (const flow of scene.flows.slice(1)) {
      const start = Number(BigInt(flow.start) - scene.base);
      const other = this.place(scene, flow, start, Number(BigInt(flow.end) - scene.base));
      if (!other) continue;
      // an arrow goes from the left edge of the cause to that of its effect
      const [a, b] = other.x < from.x ? [other, from] : [from, other];
      const [ay, by] = [a.y + a.height / 2, b.y + b.height / 2];
      const bend = Math.min(80, Math.max(12, Math.abs(b.x - a.x) / 2));
      to.beginPath();
      to.moveTo(a.x, ay);
      to.bezierCurveTo(a.x + bend, ay, b.x - bend, by, b.x, by);
      to.moveTo(b.x - 5, by - 3);
      to.lineTo(b.x, by);
      to.lineTo(b.x - 5, by + 3);
      to.stroke();
    }
    to.globalAlpha = 1;
  }

  private mark(scene: Scene): void {
    if (!scene.mark) return;
    const to = this.context;
    const left = Math.max(scene.gutter, x(scene, scene.mark[0]));
    const right = Math.min(scene.width, x(scene, scene.mark[1]));
    if (right < left) return;
    to.fillStyle = this.accent;
    to.globalAlpha = 0.13;
    to.fillRect(left, RULER, right - left, scene.height);
    to.globalAlpha = 1;
    to.fillRect(left, RULER, 1, scene.height);
    to.fillRect(right - 1, RULER, 1, scene.height);
    const told = timeText(scene.mark[1] - scene.mark[0]);
    const wide = told.length * CHARACTER + 12;
    const middle = Math.max(scene.gutter, Math.min(scene.width - wide, (left + right - wide) / 2));
    to.fillRect(middle, RULER + 2, wide, 18);
    to.fillStyle = this.paper;
    to.textAlign = "left";
    to.textBaseline = "middle";
    to.fillText(told, middle + 6, RULER + 11);
  }
}

function x(scene: Scene, at: number): number {
  const place = scene.gutter + ((at - scene.view.low) / scene.view.span) * (scene.width - scene.gutter);
  return Math.max(-1e6, Math.min(1e6, place));
}

/** The text as far as it fits, by the width of a usual character: measuring each takes too long. */
function fitted(text: string, width: number): string {
  const room = Math.floor(width / CHARACTER);
  if (text.length <= room) return text;
  return room < 4 ? text.slice(0, Math.max(1, room)) : `${text.slice(0, room - 1)}…`;
}

/** A slice's name where it has no room: what all have in front goes first, as folders, namespaces, `cuda`. */
function label(name: string, width: number): string {
  if (name.length * CHARACTER <= width) return name;
  const bare = shortSource(name).replace(/^void /, "");
  const spaces = bare.slice(0, Math.max(0, bare.search(/[<(]|$/))).lastIndexOf("::") + 2;
  return fitted((spaces > 2 ? bare.slice(spaces) : bare).replace(/^(cuda|hip|cu)(?=[A-Z])/, ""), width);
}

function colour(css: string): Colour {
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(css);
  const [red, green, blue] = hex ? hex.slice(1).map((one) => parseInt(one, 16)) : [136, 136, 136];
  const light = 0.2126 * linear(red!) + 0.7152 * linear(green!) + 0.0722 * linear(blue!);
  return {
    css: hex ? css : "#888888",
    rgb: ((255 << 24) | (blue! << 16) | (green! << 8) | red!) >>> 0,
    ink: light > 0.18 ? "#14171b" : "#ffffff",
  };
}

function linear(byte: number): number {
  const part = byte / 255;
  return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
}

/** The slice at a point of a strip; of columns the longest one there. */
export function sliceAt(scene: Scene, pointX: number, pointY: number): SliceAt | null {
  if (pointX < scene.gutter || pointY < RULER || !scene.picture) return null;
  const y = pointY + scene.scroll;
  const band = scene.bands.find((one) => y >= one.y && y < one.y + one.height);
  if (band?.kind !== "lane") return null;
  const level = Math.floor((y - band.y - band.top) / band.strip);
  const strip = scene.picture.lanes.get(band.lane.id)?.[level];
  if (level < 0 || level >= band.strips || !strip) return null;
  const nsPerPixel = scene.view.span / (scene.width - scene.gutter);
  const at = scene.view.low + (pointX - scene.gutter) * nsPerPixel - Number(scene.picture.start - scene.base);
  let best = -1;
  let distance = 2.5 * nsPerPixel;
  for (let place = 0; place < strip.many; place++) {
    const start = strip.start[place]!;
    const away = Math.max(0, start - at, at - start - strip.lasted[place]!);
    if (away < distance) [best, distance] = [place, away];
    if (away === 0) break;
    if (start - at > distance) break;
  }
  if (best >= 0) return { lane: band.lane.id, level, index: strip.index(best) };
  const column = Math.floor((at / scene.picture.span) * scene.picture.columns);
  const longest = strip.longest[column];
  return longest === undefined || longest < 0 ? null : { lane: band.lane.id, level, index: longest };
}
