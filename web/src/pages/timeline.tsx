// The page Timeline: lanes of threads and streams over time, with the details of what is selected.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Page, PageProps } from "../page";
import { wordsFor } from "../parts/answer";
import { colourOf } from "../parts/colours";
import { exact, share, show, time, visible } from "../parts/format";
import { Middle } from "../parts/name";
import { Empty, Failed } from "../parts/states";
import { useTheme } from "../parts/theme";
import { selection, setParams } from "../state";
import { Board } from "../timeline/board";
import { type Found, type LaneSaid, type Said, type SliceAt, type Sums, timelineOf } from "../timeline/data";
import { SliceDetails, SumDetails } from "../timeline/details";
import { ordered } from "../timeline/layout";
import { stamp } from "../timeline/ruler";
import "../timeline/timeline.css";

export const PAGE: Page = { name: "timeline", title: "Timeline", key: "t", component: TimelinePage, alone: true };

const OWN = new Set(["step", "phase", "layer", "range", "python", "graph", "call"]);
/** While the picture is provisional, and if that could not be ended. */
const BY_NAME_YET = " Kernels are coloured by what their names show; the colours of their ops follow …";
const BY_NAME = " Kernels are coloured by what their names show, not by their ops.";
/** The address follows the window after this long, in ms. */
const SETTLED = 250;

interface Tip {
  x: number;
  y: number;
  title: string;
  text: string;
}

function TimelinePage({ source, params, shown }: PageProps) {
  const chosen = JSON.stringify(selection());
  const data = useMemo(() => timelineOf(source), [source, chosen]);
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const board = useRef<Board | null>(null);
  const [, redraw] = useState(0);
  const [failed, setFailed] = useState<string>();
  const [parts, setParts] = useState<{ host?: Said; device?: Said; attempt: number }>({ attempt: 0 });
  const [tip, setTip] = useState<Tip | null>(null);
  const [sums, setSums] = useState<Sums | null>(null);
  const [found, setFound] = useState<Found | null>(null);
  const [words, setWords] = useState("");
  const [unsettled, setUnsettled] = useState(false);
  const theme = useTheme();
  const query = params.get("q") ?? "";
  const written = useRef("");
  const drag = useRef<{ x: number; y: number; low: number; shift: boolean; moved: boolean } | null>(null);
  const tipAsked = useRef("");
  const mouse = useRef<number | null>(null);
  const [copied, setCopied] = useState("");

  // The board lives as long as what it shows. Its lanes are asked for before the page is drawn for the first time
  useLayoutEffect(() => {
    const made = new Board(canvas.current!, data, (told) => {
      if (told.failed !== undefined) {
        setFailed(told.failed);
        void rest();
      } else if (told.drawn) {
        setFailed(undefined);
        void rest();
      }
      redraw((one) => one + 1);
    });
    board.current = made;
    const abort = new AbortController();
    const got: { host?: Said; device?: Said } = {};
    const ask = async (part: "host" | "device") => {
      try {
        const said = await data.lanes(part, abort.signal);
        if (abort.signal.aborted) return;
        got[part] = said;
        made.complete = got.host !== undefined && got.device !== undefined;
        made.take(ordered(got.host?.lanes ?? [], got.device?.lanes ?? []), said.categories, said.span);
        setParts((before) => ({ ...before, ...got }));
        if (said.steps) made.steps = { low: made.offset(said.steps[0]), span: Number(BigInt(said.steps[1]) - BigInt(said.steps[0])) };
        if (made.ready) fromAddress(made, params);
        // it opens on the steps, unless the address or a person has chosen a window
        const whole = made.view.low === made.whole.low && made.view.span === made.whole.span;
        if (part === "host" && whole && !params.get("start") && stepsAreLess(made)) made.toSteps();
        // a span that the address names is added up over all lanes
        if (made.mark && made.complete) add(made.mark);
        made.askCurves();
        if (!said.lanes.length) void rest();
      } catch (failure) {
        if (abort.signal.aborted) return;
        setFailed(wordsFor(failure));
        void rest();
      }
    };
    // Kernels were drawn by their names: once their ops are known, they are drawn anew
    const settle = async () => {
      try {
        await data.settled(abort.signal);
        if (!abort.signal.aborted) made.renew();
      } catch (failure) {
        if (abort.signal.aborted) return;
        setFailed(wordsFor(failure));
        setUnsettled(true);
      }
    };
    // What ran on devices is drawn first: the threads' lanes need the whole trace
    let asked = false;
    const rest = async () => {
      if (asked) return;
      asked = true;
      let device = got.device;
      // A kept picture is there before its lanes: these come before all else, as a zoom needs them
      if (device?.kept) device = await data.lanes("device", abort.signal, true).catch(() => undefined);
      if (abort.signal.aborted) return;
      shown?.();
      if (device?.provisional) void settle();
      void ask("host");
    };
    void ask("device");
    const measure = () => {
      const box = scroller.current;
      if (box) made.size(box.clientWidth, box.clientHeight);
    };
    const watch = new ResizeObserver(measure);
    watch.observe(scroller.current!);
    measure();
    return () => {
      abort.abort();
      watch.disconnect();
      made.close();
      setParts({ attempt: 0 });
      setSums(null);
      setUnsettled(false);
    };
  }, [data]);

  useEffect(() => board.current?.theme(), [theme]);

  // An address that was sent, or a link within the page: at once, as an effect would wait for the next frame
  useLayoutEffect(() => {
    const now = board.current;
    if (!now?.ready || keyOf(params) === written.current) return;
    fromAddress(now, params);
  }, [params]);

  // The search's first hit from the window's start on, and how many there are
  useEffect(() => {
    const now = board.current;
    if (!now?.ready) return;
    now.query = query;
    now.paint();
    setFound(null);
    if (!query) return;
    const abort = new AbortController();
    data.find(query, now.absolute(now.view.low), false, null, abort.signal).then(
      (one) => !abort.signal.aborted && setFound({ ...one, number: undefined, found: null }),
      (failure) => !abort.signal.aborted && setFailed(wordsFor(failure)),
    );
    return () => abort.abort();
  }, [query, data, parts.host, parts.device]);

  // Address and words follow once the window rests
  const view = board.current?.view;
  useEffect(() => {
    const now = board.current;
    if (!now?.ready) return;
    const timer = setTimeout(() => {
      const whole = now.view.low === now.whole.low && now.view.span === now.whole.span;
      const at = now.selected;
      const change = {
        start: whole ? undefined : String(now.absolute(now.view.low)),
        end: whole ? undefined : String(now.absolute(now.view.low + now.view.span)),
        sel: at ? `${at.lane}:${at.level}:${at.index}` : undefined,
        mark: now.mark ? `${now.absolute(now.mark[0])}:${now.absolute(now.mark[1])}` : undefined,
      };
      const next = new URLSearchParams(params);
      for (const [name, value] of Object.entries(change)) value ? next.set(name, value) : next.delete(name);
      written.current = keyOf(next);
      setParams(change);
      setWords(inWords(now));
    }, SETTLED);
    return () => clearTimeout(timer);
  }, [view?.low, view?.span, board.current?.selected, board.current?.mark, board.current?.picture]);

  const lanes = board.current?.lanes ?? [];

  function select(at: SliceAt | null, look: "reveal" | "zoom" | "stay" = "stay"): void {
    const now = board.current!;
    now.selected = at;
    now.detail = null;
    now.paint();
    redraw((one) => one + 1);
    if (!at) return;
    data.detail(at).then(
      (detail) => {
        if (now.selected !== at || board.current !== now) return;
        now.detail = detail;
        if (look !== "stay") {
          now.reveal(now.offset(detail.start), now.offset(detail.end), look === "zoom");
          intoSight(now, at);
        }
        now.paint();
        redraw((one) => one + 1);
      },
      (failure) => setFailed(wordsFor(failure)),
    );
  }

  /** Scrolls to a lane and opens it if the strip is not drawn. */
  function intoSight(now: Board, at: SliceAt): void {
    const strips = now.layout.bands.find((one) => one.kind === "lane" && one.lane.id === at.lane);
    if (strips?.kind === "lane" && at.level >= strips.strips) now.turn(at.lane);
    const band = now.layout.bands.find((one) => one.kind === "lane" && one.lane.id === at.lane);
    const box = scroller.current;
    if (band?.kind !== "lane" || !box) return;
    const y = band.y + band.top + at.level * band.strip;
    if (y < box.scrollTop + 30 || y > box.scrollTop + box.clientHeight - 30) box.scrollTop = Math.max(0, y - box.clientHeight / 2);
  }

  function add(mark: [number, number] | null): void {
    const now = board.current!;
    now.mark = mark;
    now.paint();
    setSums(null);
    redraw((one) => one + 1);
    if (!mark) return;
    const ids = now.lanes.map((one) => one.id);
    data.sums(now.absolute(mark[0]), now.absolute(mark[1]), ids.slice(0, 500)).then(
      (found) => now.mark === mark && setSums(found),
      (failure) => setFailed(wordsFor(failure)),
    );
  }

  function fromAddress(now: Board, given: URLSearchParams): void {
    const [start, end] = [whole(given.get("start")), whole(given.get("end"))];
    if (start !== null && end !== null && end > start) now.go(now.offset(start), Number(end - start));
    else if (start === null && end === null && written.current) stepsAreLess(now) ? now.toSteps() : now.fit();
    written.current = keyOf(given);
    const at = /^([dh]\d{1,8}):(\d{1,3}):(\d{1,9})$/.exec(given.get("sel") ?? "");
    if (at && now.lanes.some((one) => one.id === at[1])) {
      const wanted = { lane: at[1]!, level: Number(at[2]), index: Number(at[3]) };
      const held = now.selected;
      if (held?.lane !== wanted.lane || held.level !== wanted.level || held.index !== wanted.index) {
        select(wanted, start === null ? "reveal" : "stay");
      }
    }
    const [from, to] = (given.get("mark") ?? "").split(":").map(whole);
    if (from !== null && to !== null && from !== undefined && to !== undefined && to > from && !now.mark) {
      add([now.offset(from), now.offset(to)]);
    }
  }

  function next(back: boolean): void {
    const now = board.current;
    if (!now || !query) return;
    const held = now.detail;
    const from = held ? BigInt(held.start) : now.absolute(now.view.low + (back ? now.view.span : 0));
    data.find(query, from, back, held).then(
      (one) => {
        setFound(one);
        if (one.found) select({ lane: one.found.lane, level: one.found.level, index: one.found.index }, "reveal");
      },
      (failure) => setFailed(wordsFor(failure)),
    );
  }

  /** Selects the next slice with the name of the selected one, or the one before. */
  function same(back: boolean): void {
    const held = board.current?.detail;
    if (!held) return;
    data.find(held.name, BigInt(held.start), back, held, undefined, true).then(
      (one) => one.found && select({ lane: one.found.lane, level: one.found.level, index: one.found.index }, "reveal"),
      (failure) => setFailed(wordsFor(failure)),
    );
  }

  /** The address has the window, the selection and the measured span; what follows from it waits until it rests. */
  function copyLink(): void {
    const url = location.href;
    Promise.resolve(navigator.clipboard?.writeText(url)).then(
      () => setCopied(navigator.clipboard ? "copied" : "the address bar has it"),
      () => setCopied("the address bar has it"),
    );
  }

  function pressed(event: KeyboardEvent): void {
    const now = board.current;
    if (!now?.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 0.5 : 0.15;
    const done: Record<string, () => void> = {
      // at the mouse where it is over the lanes
      w: () => now.zoom(0.7, mouse.current ?? undefined),
      s: () => now.zoom(1 / 0.7, mouse.current ?? undefined),
      "+": () => now.zoom(0.7),
      "-": () => now.zoom(1 / 0.7),
      a: () => now.pan(-step),
      d: () => now.pan(step),
      ArrowLeft: () => now.pan(-step),
      ArrowRight: () => now.pan(step),
      f: () => now.fit(),
      "0": () => now.fit(),
      z: () => toSelection(now),
      b: () => same(event.shiftKey),
      n: () => next(event.shiftKey),
      N: () => next(true),
      Enter: () => (query ? next(event.shiftKey) : neighbour(now, 0)),
      ".": () => neighbour(now, 1),
      ",": () => neighbour(now, -1),
      Escape: () => (now.mark ? add(null) : select(null)),
    };
    const key = event.key.length === 1 && /[A-Z]/.test(event.key) && event.key !== "N" ? event.key.toLowerCase() : event.key;
    const action = Object.hasOwn(done, key) ? done[key] : undefined;
    if (!action) return;
    action();
    event.preventDefault();
  }

  // Keys work wherever the focus is, but in fields and lists
  useEffect(() => {
    const heard = (event: KeyboardEvent) => {
      const on = event.target instanceof Element ? event.target : null;
      if (event.defaultPrevented || on?.closest("input, select, textarea, dialog, [role=grid]")) return;
      if (on?.closest("button, a, summary") && (event.key === "Enter" || event.key === " ")) return;
      pressed(event);
    };
    // The header's field: Enter goes to the next hit
    const searched = (event: KeyboardEvent) => {
      if (event.key === "Enter" && event.target instanceof HTMLInputElement && event.target.id === "search") setTimeout(() => next(event.shiftKey), 0);
    };
    addEventListener("keydown", heard);
    addEventListener("keydown", searched, { capture: true });
    return () => {
      removeEventListener("keydown", heard);
      removeEventListener("keydown", searched, { capture: true });
    };
  });

  function toSelection(now: Board): void {
    if (now.mark) now.reveal(now.mark[0], now.mark[1], true);
    else if (now.detail) now.reveal(now.offset(now.detail.start), now.offset(now.detail.end), true);
  }

  /** Selects the slice before or after the selected one on its strip; without one, the first in sight. */
  function neighbour(now: Board, step: number): void {
    const held = now.selected;
    if (held) {
      if (step && held.index + step >= 0) select({ ...held, index: held.index + step }, "reveal");
      return;
    }
    for (const [lane, strips] of now.picture?.lanes ?? []) {
      const strip = strips[0];
      if (strip?.many) return select({ lane, level: 0, index: strip.index(0) });
    }
  }

  function pointer(event: PointerEvent): [number, number] {
    const box = canvas.current!.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function down(event: PointerEvent): void {
    if (event.button !== 0) return;
    const [x, y] = pointer(event);
    const now = board.current;
    if (!now?.ready || x < now.gutter) return;
    drag.current = { x, y, low: now.view.low, shift: event.shiftKey, moved: false };
    if (event.pointerType === "mouse") canvas.current!.setPointerCapture(event.pointerId);
    setTip(null);
  }

  function moved(event: PointerEvent): void {
    const now = board.current;
    if (!now?.ready) return;
    const [x, y] = pointer(event);
    mouse.current = x < now.gutter ? null : x;
    const held = drag.current;
    if (held) {
      if (Math.abs(x - held.x) < 4 && !held.moved) return;
      held.moved = true;
      if (!held.shift) {
        const ends = [now.timeAt(held.x), now.timeAt(x)].map((one) => Math.round(one)).sort((a, b) => a - b);
        now.mark = [ends[0]!, Math.max(ends[0]! + 1, ends[1]!)];
        now.paint();
      } else now.go(held.low - ((x - held.x) / (now.width - now.gutter)) * now.view.span, now.view.span);
      return;
    }
    const at = now.at(x, y);
    if (keyOfSlice(at) !== keyOfSlice(now.hover)) {
      now.hover = at;
      now.paint();
      hint(now, at, x, y);
    } else if (tip) setTip({ ...tip, x, y });
  }

  function hint(now: Board, at: SliceAt | null, x: number, y: number): void {
    const key = keyOfSlice(at);
    tipAsked.current = key;
    if (!at) return setTip(null);
    setTimeout(() => {
      if (tipAsked.current !== key) return;
      data.detail(at, true).then(
        (one) => {
          if (tipAsked.current !== key || board.current !== now) return;
          setTip({ x, y, title: one.name, text: `${time(one.time)} · ${one.kind} · ${one.where}` });
        },
        () => undefined,
      );
    }, 90);
  }

  function up(event: PointerEvent): void {
    const now = board.current;
    const held = drag.current;
    drag.current = null;
    if (!now?.ready || !held) return;
    const [x, y] = pointer(event);
    if (held.moved && !held.shift && now.mark) add([...now.mark]);
    else if (!held.moved) select(now.at(x, y));
  }

  function wheel(event: WheelEvent): void {
    const now = board.current;
    if (!now?.ready) return;
    const [x] = pointer(event as unknown as PointerEvent);
    const scale = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) now.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * scale)) * 0.008), x);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      now.pan((((event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) * scale) / Math.max(1, now.width)) * 1);
    } else return;
    event.preventDefault();
  }

  // Preact adds wheel handlers as passive; this one may keep the page from zooming
  useEffect(() => {
    const box = scroller.current;
    box?.addEventListener("wheel", wheel, { passive: false });
    return () => box?.removeEventListener("wheel", wheel);
  });

  const now = board.current;
  const empty = parts.host && parts.device && lanes.length === 0;
  const shownKinds = useMemo(() => kindsOf(now), [now?.picture, now?.categories]);
  return (
    <div class="tl">
      <div class="tl-bar" role="toolbar" aria-label="Timeline">
        <button type="button" onClick={() => now?.zoom(0.5)} title="w">Zoom in</button>
        <button type="button" onClick={() => now?.zoom(2)} title="s">Zoom out</button>
        <button type="button" onClick={() => now?.pan(-0.4)} title="a" aria-label="Earlier">←</button>
        <button type="button" onClick={() => now?.pan(0.4)} title="d" aria-label="Later">→</button>
        <button type="button" onClick={() => now?.fit()} title="f">All</button>
        {now?.steps && stepsAreLess(now) && <button type="button" onClick={() => now.toSteps()} title="the first step to the last">Steps</button>}
        <button type="button" disabled={!now?.mark && !now?.selected} onClick={() => now && toSelection(now)} title="z">Zoom to selection</button>
        <button type="button" onClick={() => now && add([now.view.low, now.view.low + now.view.span])} title="or drag over a span">Sum of window</button>
        <button type="button" onClick={() => now?.turnAll(true)}>Open all</button>
        <button type="button" onClick={() => now?.turnAll(false)}>Close all</button>
        <button type="button" onClick={copyLink} title="The address opens this window, selection and measured span again">Copy link</button>
        {copied && (
          <span class="quiet" role="status">
            {copied}
          </span>
        )}
        {query && (
          <span class="hits" role="status">
            <button type="button" onClick={() => next(true)} title="N" aria-label="Previous hit">‹</button>{" "}
            <button type="button" onClick={() => next(false)} title="n" aria-label="Next hit">›</button>{" "}
            {found === null ? "searching …" : found.total === 0 ? "no slice has this in its name" : `${found.number ? `${show(found.number, "count")} of ` : ""}${show(found.total, "count")} ${found.total === 1 ? "hit" : "hits"}`}
          </span>
        )}
      </div>
      {failed !== undefined && <Failed>{visible(failed)}</Failed>}
      {empty && <Empty title="Nothing to show">No range, call, kernel or copy of what is selected has a time.</Empty>}
      <div class={now?.mark || now?.selected ? "tl-parts beside" : "tl-parts"}>
      <div class="tl-board" hidden={empty}>
        <div
          class="tl-scroll"
          ref={scroller}
          tabIndex={0}
          role="application"
          aria-label="Timeline. w and s zoom, a and d move, n and N go to hits of the search, period and comma select the next and previous slice, f shows all."
          aria-describedby="tl-words"
          onScroll={(event) => {
            if (!now) return;
            now.scroll = event.currentTarget.scrollTop;
            now.ask();
            now.paint();
            redraw((one) => one + 1);
          }}
        >
          <div class="tl-whole" style={{ height: `${now?.layout.height ?? 0}px` }}>
            <canvas
              class="tl-canvas"
              ref={canvas}
              onPointerDown={down}
              onPointerMove={moved}
              onPointerUp={up}
              onPointerCancel={() => (drag.current = null)}
              onPointerLeave={() => {
                tipAsked.current = "";
                mouse.current = null;
                setTip(null);
              }}
              onDblClick={() => now && toSelection(now)}
            />
            {now && <Titles board={now} />}
          </div>
        </div>
        {tip && now && (
          <div class="tl-tip" style={{ left: `${Math.min(tip.x + 14, Math.max(0, now.width - 300))}px`, top: `${Math.min(tip.y + 18, Math.max(0, now.height - 70))}px` }}>
            <b>{visible(tip.title.slice(0, 400))}</b>
            <span class="quiet">{visible(tip.text)}</span>
          </div>
        )}
      </div>
      {(now?.mark || now?.selected) && (
        <div class="tl-side">
          {now.mark && <SumDetails mark={now.mark} sums={sums} lanes={lanes} onClose={() => add(null)} />}
          {now.selected && <SliceDetails detail={now.detail} base={now.base} onGo={(at) => select(at, "reveal")} onSame={same} onClose={() => select(null)} />}
        </div>
      )}
      </div>
      <p id="tl-words" class="quiet" aria-live="polite">
        {words}
        {!parts.host && !failed && " Reading the threads …"}
        {!parts.device && !failed && " Reading the streams …"}
        {now?.picture?.provisional && (unsettled ? BY_NAME : BY_NAME_YET)}
        {data.left() && ` ${data.left()}`}
        {leftOut(lanes)}
      </p>
      <ul class="tl-legend" aria-label="Colours">
        {shownKinds.map((kind) => (
          <li key={kind}>
            <span class="swatch" style={{ background: OWN.has(kind) ? `var(--t-${kind})` : colourOf(kind) }} />
            {kind}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The titles of the lanes in sight: buttons that open and close them. */
function Titles({ board }: { board: Board }) {
  const { bands } = board.layout;
  const [low, high] = [board.scroll - 100, board.scroll + board.height + 100];
  const width = board.narrow ? board.width : board.gutter - 1;
  return (
    <div class="tl-titles">
      {bands.map((band) => {
        if (band.y + band.height < low || band.y > high || band.y + 12 < board.scroll + 22) return null;
        if (band.kind === "curve") {
          if (board.narrow) return null;
          return (
            <div key={`c${band.curve}`} class="tl-title tl-curve quiet" style={{ top: `${band.y + 3}px`, width: `${width}px` }} title={visible(`${band.title}: ${band.how}`)}>
              <span>{visible(band.title)}</span>
              <span>{band.scale}</span>
            </div>
          );
        }
        if (band.kind === "heading" && band.folds) {
          const open = board.open.has(band.folds);
          return (
            <button key="folds" type="button" class="tl-title tl-folds" style={{ top: `${band.y}px`, width: `${width}px` }} aria-expanded={open} onClick={() => board.turn(band.folds!)}>
              <span class="turn">{open ? "▾" : "▸"}</span>
              {band.text}
            </button>
          );
        }
        if (band.kind !== "lane") return null;
        const { lane } = band;
        const open = board.open.has(lane.id);
        const many = lane.levels > 1;
        return (
          <button
            key={lane.id}
            type="button"
            class="tl-title"
            style={{ top: `${band.y + (board.narrow ? 0 : 2)}px`, width: `${width}px` }}
            aria-expanded={many ? open : undefined}
            disabled={!many}
            title={`${visible(lane.title)}: ${exact(lane.slices, "count")} slices, ${lane.levels} deep`}
            onClick={() => board.turn(lane.id)}
          >
            <span class="turn">{many ? (open ? "▾" : "▸") : ""}</span>
            <Middle text={lane.title} />
          </button>
        );
      })}
    </div>
  );
}

/** Whether the steps leave a good part of the trace out: imports, building, what follows. */
function stepsAreLess(board: Board): boolean {
  return board.steps !== null && board.steps.span > 0 && board.steps.span < board.whole.span * 0.9;
}

function kindsOf(board: Board | null): string[] {
  if (!board?.picture) return [];
  const found = new Set<number>();
  for (const strips of board.picture.lanes.values()) {
    for (const strip of strips) {
      for (const kind of strip.kinds) found.add(kind);
      for (const kind of strip.kind) found.add(kind);
    }
  }
  return [...found].sort((a, b) => a - b).map((kind) => board.categories[kind] ?? "unknown");
}

function inWords(board: Board): string {
  const { low, span } = board.view;
  const step = Math.max(1, 10 ** Math.floor(Math.log10(span) - 2));
  let slices = 0;
  for (const strips of board.picture?.lanes.values() ?? []) for (const strip of strips) slices += strip.slices;
  const busy = board.busyShare().slice(0, 8).map((one) => `${one.title} busy ${share(one.share)}`);
  const said = [
    `${stamp(low, step, low + span)} to ${stamp(low + span, step)} (${time(span)}) of ${time(board.whole.span)}`,
    ...busy,
    `${show(slices, "count")} slices on the lanes in sight`,
  ];
  return `${said.join("; ")}.`;
}

function leftOut(lanes: LaneSaid[]): string {
  const left = lanes.reduce((sum, one) => sum + one.left, 0);
  return left ? ` ${show(left, "count")} slices lie more than 64 deep and are not drawn; sums have them.` : "";
}

function keyOf(params: URLSearchParams): string {
  return ["start", "end", "sel", "mark"].map((name) => params.get(name) ?? "").join(" ");
}

function keyOfSlice(at: SliceAt | null): string {
  return at ? `${at.lane}:${at.level}:${at.index}` : "";
}

function whole(text: string | null | undefined): bigint | null {
  return text && /^-?\d{1,19}$/.test(text) ? BigInt(text) : null;
}
