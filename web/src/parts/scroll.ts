// Which rows of a long list are in sight. Rows have one height, so that this is arithmetic, and any number fits:
// a browser caps an element's height, so beyond the cap the scroll bar's way is scaled.
import { type RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Height in px that every browser grants (Firefox: 17.9 M, Chromium: 33.5 M): about 500,000 rows. */
export const TALLEST = 13_000_000;
/** Rows drawn beyond the edges, so that a quick scroll shows no gap. */
const OVER = 6;

export interface Scroll {
  /** The rows to draw: from `first`, before `last`. */
  first: number;
  last: number;
  /** How many rows fit. */
  fits: number;
  /** Height of all rows in px, capped. */
  height: number;
  /** Width in px that the box may take. */
  room: number;
  /** Height of the horizontal scroll bar in px. */
  bar: number;
  /** There is more to the right of what is in sight. */
  further: boolean;
  /** Where a row is drawn, in px from the first row's place. */
  top: (index: number) => number;
  /** Brings a row into sight. */
  show: (index: number) => void;
}

/** The first row in sight, with its fraction, at this position of the scroll bar. */
export function rowAt(position: number, rows: number, row: number, room: number): number {
  const whole = rows * row;
  const height = Math.min(whole, TALLEST);
  if (height <= room) return 0;
  return ((position / (height - room)) * (whole - room)) / row;
}

/** The position of the scroll bar at which this row is the first in sight. */
export function positionOf(first: number, rows: number, row: number, room: number): number {
  const whole = rows * row;
  const height = Math.min(whole, TALLEST);
  if (height <= room) return 0;
  return (Math.min(first * row, whole - room) / (whole - room)) * (height - room);
}

function goesOn(element: HTMLElement): boolean {
  return element.scrollLeft + element.clientWidth < element.scrollWidth - 1;
}

export function useScroll(box: RefObject<HTMLElement | null>, rows: number, row: number, beside: number, key: string): Scroll {
  const [size, setSize] = useState({ room: 1000, height: 400, bar: 0 });
  const [offset, setOffset] = useState(0);
  const [further, setFurther] = useState(false);
  /** The scroll position that we set ourselves, whose event changes nothing. */
  const own = useRef(-1);
  const room = Math.max(row, size.height - beside - size.bar);
  const scaled = rows * row > TALLEST;
  const most = Math.max(0, rows - room / row);
  const first = Math.min(offset, most);

  const go = (to: number) => {
    const element = box.current;
    if (!element) return;
    const next = Math.max(0, Math.min(to, most));
    element.scrollTop = positionOf(next, rows, row, room);
    own.current = element.scrollTop;
    setOffset(next);
  };

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const around = element.closest(".table")?.parentElement ?? element;
    const measure = () => {
      const { paddingLeft, paddingRight } = getComputedStyle(around);
      const inside = around.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
      const next = { room: inside || 1000, height: element.offsetHeight, bar: element.offsetHeight - element.clientHeight };
      setFurther(goesOn(element));
      setSize((now) => (now.room === next.room && now.height === next.height && now.bar === next.bar ? now : next));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    observer.observe(around);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    measure();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const moved = () => {
      setFurther(goesOn(element));
      if (element.scrollTop !== own.current) setOffset(rowAt(element.scrollTop, rows, row, room));
      own.current = -1;
    };
    // Where the way is scaled, a notch of the wheel would pass over rows
    const wheel = (event: WheelEvent) => {
      if (event.ctrlKey || event.deltaY === 0 || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      go(offset + (event.deltaMode === 1 ? event.deltaY : event.deltaY / row));
    };
    element.addEventListener("scroll", moved, { passive: true });
    if (scaled) element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      element.removeEventListener("scroll", moved);
      element.removeEventListener("wheel", wheel);
    };
  });

  useLayoutEffect(() => {
    if (box.current) box.current.scrollTop = 0;
    setOffset(0);
  }, [key]);

  const position = positionOf(first, rows, row, room);
  return {
    first: Math.max(0, Math.floor(first) - OVER),
    last: Math.min(rows, Math.ceil(first + room / row) + OVER),
    fits: Math.floor(room / row),
    height: Math.min(rows * row, TALLEST),
    room: size.room,
    bar: size.bar,
    further,
    top: (index) => (scaled ? position + (index - first) * row : index * row),
    show: (index) => {
      if (index < first) go(index);
      else if (index + 1 > first + room / row) go(index + 1 - room / row);
    },
  };
}
