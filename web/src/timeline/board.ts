// What the timeline shows now: the window, its picture, what is selected; asks for what is missing and draws.
import type { Detail, Flow, LaneSaid, SliceAt, Timeline } from "./data";
import { laidOut, type Layout, openAtFirst, RULER, SAMPLED } from "./layout";
import { Painter, type Scene, sliceAt, type View } from "./paint";
import type { CurvePicture, Picture } from "./wire";

/** Kinds of curves, in the order in which they are drawn. */
const CURVES = ["busy", "use", "memory", "samples"] as const;
const CURVE_COLUMNS = 600;
const NAMES_AT_ONCE = 200;
/** The shortest window, ns. */
const SHORTEST = 20;
/** Below this width titles stand above their lanes, px. */
const NARROW = 640;
const GUTTER = 190;
const ROWS_AHEAD = 200;
/** For so long after a leap the picture of before stays, ms: nearly always the right one is there by then. */
const PATIENCE = 40;

export interface Told {
  failed?: string;
  /** The picture of the window is there. */
  drawn?: boolean;
}

export class Board {
  lanes: LaneSaid[] = [];
  categories: string[] = [];
  open = new Set<string>();
  layout: Layout = { bands: [], height: 0 };
  base = 0n;
  whole: View = { low: 0, span: 1 };
  view: View = { low: 0, span: 1 };
  width = 0;
  height = 0;
  scroll = 0;
  picture: Picture | null = null;
  selected: SliceAt | null = null;
  detail: Detail | null = null;
  hover: SliceAt | null = null;
  mark: [number, number] | null = null;
  /** The steps' span, as offsets; null while it is not known, or without steps. */
  steps: View | null = null;
  /** All lanes are there, so that the curves that take longest may be made. */
  complete = false;
  query = "";
  ready = false;
  private readonly names = new Map<number, string>();
  private readonly asked = new Set<number>();
  private readonly curves = new Map<string, CurvePicture>();
  private readonly painter: Painter;
  private readonly stop = new AbortController();
  private frame = 0;
  /** Draws what is there if the picture that is asked for takes long. */
  private late = 0;
  private flying = false;
  private wanted = false;
  private shown = "";
  /** Pictures that were asked for before `renew` have another number. */
  private round = 0;
  private drawn: Picture | null = null;
  private curvesFlying = false;
  /** The window of each kind of curves, and the kinds that the trace does not have. */
  private readonly curvesOf = new Map<string, View>();
  private readonly without = new Set<string>();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly data: Timeline,
    private readonly tell: (told: Told) => void,
  ) {
    this.painter = new Painter(canvas);
  }

  close(): void {
    this.stop.abort();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.late);
  }

  get gutter(): number {
    return this.width < NARROW ? 0 : GUTTER;
  }

  get narrow(): boolean {
    return this.width < NARROW;
  }

  /** Takes the lanes of one part; the first part to come is drawn while the other is still made. */
  take(lanes: LaneSaid[], categories: string[], span: [string, string] | null): void {
    if (span) {
      const [low, high] = [BigInt(span[0]), BigInt(span[1])];
      if (!this.ready) {
        this.base = low;
        this.whole = { low: 0, span: Math.max(SHORTEST, Number(high - low)) };
        this.view = { ...this.whole };
        this.ready = true;
      } else {
        const fits = this.view.low === this.whole.low && this.view.span === this.whole.span;
        // zero is the first start of all lanes, whichever part came first
        const earlier = Math.max(0, Number(this.base - low));
        this.base -= BigInt(earlier);
        this.view = { low: this.view.low + earlier, span: this.view.span };
        if (this.mark) this.mark = [this.mark[0] + earlier, this.mark[1] + earlier];
        const last = Math.max(this.whole.low + this.whole.span + earlier, Number(high - this.base));
        this.whole = { low: 0, span: last };
        if (fits) this.view = { ...this.whole };
      }
    }
    this.lanes = lanes;
    this.categories = categories;
    this.open = openAtFirst(lanes);
    this.painter.theme(categories);
    this.relay();
  }

  theme(): void {
    this.painter.theme(this.categories);
    this.paint();
  }

  size(width: number, height: number): void {
    if (width === this.width && height === this.height) return;
    this.width = width;
    this.height = height;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.relay();
  }

  turn(lane: string): void {
    if (!this.open.delete(lane)) this.open.add(lane);
    this.relay();
  }

  turnAll(open: boolean): void {
    this.open = new Set(open ? [...this.lanes.map((one) => one.id), SAMPLED] : this.lanes.filter((one) => one.levels === 1).map((one) => one.id));
    this.relay();
  }

  private relay(): void {
    const sampled = this.curves.get("samples")?.curves.length ?? 0;
    this.layout = laidOut(this.lanes, this.allCurves().flatMap((one) => one.curves), sampled, this.open, this.narrow);
    this.ask();
    this.paint();
    this.tell({});
  }

  private allCurves(): CurvePicture[] {
    return CURVES.map((of) => this.curves.get(of)).filter((one) => one !== undefined);
  }

  /** Moves the window; it stays around what there is. */
  go(low: number, span: number): void {
    const most = this.whole.span * 1.2;
    const wide = Math.round(Math.min(most, Math.max(SHORTEST, span)));
    const margin = wide * 0.5;
    const first = Math.min(this.whole.low + this.whole.span - wide + margin, Math.max(this.whole.low - margin, low));
    const before = this.view;
    this.view = { low: Math.round(wide >= this.whole.span ? this.whole.low - (wide - this.whole.span) / 2 : first), span: wide };
    this.ask();
    clearTimeout(this.late);
    if (leaps(before, this.view)) this.late = window.setTimeout(() => this.paint(), PATIENCE);
    else this.paint();
    this.tell({});
  }

  zoom(factor: number, at?: number): void {
    const part = at === undefined ? 0.5 : Math.min(1, Math.max(0, (at - this.gutter) / (this.width - this.gutter)));
    const centre = this.view.low + this.view.span * part;
    const span = Math.min(this.whole.span, Math.max(SHORTEST, this.view.span * factor));
    this.go(centre - span * part, span);
  }

  pan(part: number): void {
    this.go(this.view.low + this.view.span * part, this.view.span);
  }

  /** The steps with a little room around; without steps, all. */
  toSteps(): void {
    if (this.steps) this.go(this.steps.low - this.steps.span * 0.01, this.steps.span * 1.02);
    else this.fit();
  }

  fit(): void {
    this.go(this.whole.low, this.whole.span);
  }

  /** Shows a span with some room around it, unless it is in sight. */
  reveal(low: number, high: number, zoom = false): void {
    const inside = low >= this.view.low && high <= this.view.low + this.view.span;
    if (zoom) this.go(low - (high - low) * 0.15, Math.max(SHORTEST, (high - low) * 1.3));
    else if (!inside) {
      const span = Math.max(this.view.span, (high - low) * 1.5);
      this.go((low + high) / 2 - span / 2, span);
    }
  }

  offset(time: string | bigint): number {
    return Number(BigInt(time) - this.base);
  }

  absolute(offset: number): bigint {
    return this.base + BigInt(Math.round(offset));
  }

  scene(): Scene {
    const flows: Flow[] = this.detail ? [{ ...this.detail, what: "this" }, ...this.detail.flows] : [];
    return {
      width: this.width,
      height: this.height,
      gutter: this.gutter,
      scroll: this.scroll,
      view: this.view,
      base: this.base,
      bands: this.layout.bands,
      picture: this.picture,
      curves: this.allCurves(),
      names: this.names,
      query: this.query.toLowerCase(),
      hover: this.hover,
      selected: this.selected,
      flows,
      mark: this.mark,
    };
  }

  at(x: number, y: number): SliceAt | null {
    return sliceAt(this.scene(), x, y);
  }

  timeAt(x: number): number {
    return this.view.low + ((x - this.gutter) / Math.max(1, this.width - this.gutter)) * this.view.span;
  }

  paint(): void {
    if (this.frame || !this.width) return;
    clearTimeout(this.late);
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.painter.draw(this.scene());
      if (this.picture) {
        // what is on the canvas now, for whoever measures it
        const board = this.canvas.closest<HTMLElement>(".tl-board")!;
        board.dataset["drawn"] = `${this.picture.start} ${this.picture.start + BigInt(this.picture.span)}`;
        board.dataset["colours"] = this.picture.provisional ? "names" : "ops";
        board.dataset["window"] = `${this.absolute(this.whole.low)} ${this.absolute(this.whole.low + this.whole.span)}`;
        // what else is asked for comes after the picture: it may take the processor for seconds
        if (this.picture !== this.drawn) {
          this.drawn = this.picture;
          setTimeout(() => {
            if (this.stop.signal.aborted) return;
            this.tell({ drawn: true });
            if (!this.wanted) this.askCurves();
          });
        }
      }
      this.askNames();
    });
  }

  /** The lanes in sight and near it, with how many of their strips. */
  private inSight(): string[] {
    const found: string[] = [];
    for (const band of this.layout.bands) {
      if (band.kind !== "lane") continue;
      const near = band.y < this.scroll + this.height + ROWS_AHEAD && band.y + band.height > this.scroll + RULER - ROWS_AHEAD;
      if (near) found.push(`${band.lane.id}:${band.strips}`);
    }
    return found.slice(0, 500);
  }

  /** Asks for the picture of the window anew: the server knows more than when it made the one that is shown. */
  renew(): void {
    this.round++;
    this.ask();
  }

  /** Asks for the picture of the window: one question at a time, the latest window next. */
  ask(): void {
    if (!this.ready || this.width - this.gutter < 10) return;
    const lanes = this.inSight();
    const columns = Math.round(Math.min(4096, this.width - this.gutter));
    const key = JSON.stringify([this.view, columns, lanes, this.round]);
    if (!lanes.length || key === this.shown) return;
    if (this.flying) {
      this.wanted = true;
      return;
    }
    this.flying = true;
    const low = this.absolute(this.view.low);
    const signal = this.stop.signal;
    this.data
      .picture(lanes, low, low + BigInt(this.view.span), columns, signal)
      .then(
        (picture) => {
          if (signal.aborted) return;
          this.shown = key;
          this.picture = picture;
          this.paint();
        },
        (failure: unknown) => {
          if (!signal.aborted) this.tell({ failed: failure instanceof Error ? failure.message : String(failure) });
        },
      )
      .finally(() => {
        this.flying = false;
        if (this.wanted && !signal.aborted) {
          this.wanted = false;
          this.ask();
        }
      });
  }

  /** Asks for the curves of the window, one kind after the other, once its lanes are drawn. */
  askCurves(): void {
    if (!this.ready || this.width - this.gutter < 10 || !this.picture || this.curvesFlying) return;
    const { view } = this;
    // the use of a device may take seconds to make: then the lanes come first
    const of = CURVES.find((of) => (of === "busy" || this.complete) && this.curvesOf.get(of) !== view && !this.without.has(of));
    if (of === undefined) return;
    this.curvesFlying = true;
    const low = this.absolute(view.low);
    const columns = Math.min(CURVE_COLUMNS, Math.round(this.width - this.gutter));
    const signal = this.stop.signal;
    this.data
      .curves(of, low, low + BigInt(view.span), columns, signal)
      .then((found) => {
        if (signal.aborted) return;
        this.curvesOf.set(of, view);
        const before = this.curves.get(of)?.curves.length ?? 0;
        this.curves.set(of, found);
        // which curves there are does not depend on the window; of devices only once there are lanes of them
        if (!found.curves.length && this.complete) this.without.add(of);
        if (found.curves.length !== before) this.relay();
        else this.paint();
        if (of === "busy") this.tell({});
      })
      // without a curve the lanes are still worth seeing
      .catch(() => this.curvesOf.set(of, view))
      .finally(() => {
        this.curvesFlying = false;
        if (!signal.aborted) this.askCurves();
      });
  }

  private askNames(): void {
    const ids = [...this.painter.missing].filter((id) => !this.asked.has(id)).slice(0, NAMES_AT_ONCE);
    if (!ids.length) return;
    for (const id of ids) this.asked.add(id);
    this.data.names(ids).then(
      (found) => {
        for (const [id, name] of found) this.names.set(id, name);
        this.paint();
      },
      () => ids.forEach((id) => this.asked.delete(id)),
    );
  }

  /** The share of the window in which each device was busy, as far as it is known. */
  busyShare(): { title: string; share: number }[] {
    const found = this.curves.get("busy");
    if (!found) return [];
    return found.curves.map((one) => {
      let sum = 0;
      for (const value of one.values) sum += value;
      return { title: `device ${one.device}`, share: sum / Math.max(1, one.values.length) };
    });
  }
}

/** Whether a window shows so little of what another did that the other's picture, stretched, says nothing. */
function leaps(from: View, to: View): boolean {
  const common = Math.min(from.low + from.span, to.low + to.span) - Math.max(from.low, to.low);
  return common < Math.max(from.span, to.span) / 4;
}
