// The tree of modules as a table whose rows open and close, with keys as in a tree.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { unfit } from "./columns";
import { exact, show, visible } from "./format";
import { Share } from "./share";
import { Filter } from "./table_tools";
import type { Whole } from "./whole";

/** Rows drawn at most: more are opened bit by bit. */
const DRAWN = 600;
/** The tree is opened at first down to where it has this many rows. */
const FIRST = 40;

interface Column {
  name: string;
  title: string;
  unit: string;
}

const COLUMNS: Column[] = [
  { name: "device_total", title: "time", unit: "ns" },
  { name: "share", title: "share", unit: "fraction" },
  { name: "forward_part", title: "forward", unit: "ns" },
  { name: "backward_part", title: "backward", unit: "ns" },
  { name: "rest_part", title: "optimizer, other", unit: "ns" },
  { name: "device_self", title: "own", unit: "ns" },
  { name: "flops", title: "FLOPs", unit: "FLOP" },
  { name: "bytes", title: "bytes", unit: "bytes" },
  { name: "kernels", title: "kernels", unit: "count" },
  { name: "module_calls", title: "calls", unit: "count" },
];

/** The rows to draw: those whose ancestors are open; with a search, the hits and what is around them. */
export function drawnRows(parent: (number | null)[], open: Set<number>, hit: boolean[] | null): number[] {
  const seen = new Array<boolean>(parent.length).fill(false);
  if (hit) {
    for (let row = parent.length - 1; row >= 0; row--) {
      if (hit[row]) seen[row] = true;
      const above = parent[row];
      if (seen[row] && above !== null && above !== undefined) seen[above] = true;
    }
  } else {
    for (let row = 0; row < parent.length; row++) {
      const above = parent[row];
      seen[row] = above === null || above === undefined || (seen[above]! && open.has(above));
    }
  }
  return seen.flatMap((one, row) => (one ? [row] : []));
}

/** The rows that are open at first: level by level while there is room. */
export function openedFirst(parent: (number | null)[], depth: (number | null)[], most: number): Set<number> {
  const byDepth: number[][] = [];
  depth.forEach((level, row) => (byDepth[level ?? 0] ??= []).push(row));
  const open = new Set<number>();
  let shown = byDepth[0]?.length ?? 0;
  for (let level = 0; level + 1 < byDepth.length; level++) {
    shown += byDepth[level + 1]!.length;
    if (shown > most && level > 0) break;
    for (const row of byDepth[level + 1]!) if (parent[row] !== null) open.add(parent[row]!);
  }
  return open;
}

export function ModuleTree(props: {
  table: Whole;
  search: string;
  onSearch: (text: string) => void;
  selected: string | null;
  onSelect: (layer: string | null) => void;
}) {
  const { table, search } = props;
  const parent = useMemo(() => table.numbers("parent_module"), [table]);
  const depth = useMemo(() => table.numbers("depth"), [table]);
  const [open, setOpen] = useState(() => openedFirst(parent, depth, FIRST));
  const [most, setMost] = useState(DRAWN);
  useEffect(() => setOpen(openedFirst(parent, depth, FIRST)), [table]);
  const hit = useMemo(() => {
    if (!search) return null;
    const wanted = search.toLowerCase();
    return Array.from({ length: table.many }, (_, row) =>
      ["module", "layer", "module_type"].some((name) => table.text(name, row)?.toLowerCase().includes(wanted)),
    );
  }, [table, search]);
  const rows = useMemo(() => drawnRows(parent, open, hit), [parent, open, hit]);
  const holds = useMemo(() => new Set(parent.filter((one): one is number => one !== null)), [parent]);
  const body = useRef<HTMLTableSectionElement>(null);
  const [at, setAt] = useState(0);
  if (!table.many) return <p class="no-rows">{visible(table.page.empty)}</p>;
  const without = unfit(table.page);
  const columns = COLUMNS.filter((column) => !without.has(column.name));
  const meaning = new Map(table.page.columns.map((column) => [column.name, column.meaning]));
  const toggle = (row: number, to = !open.has(row)) => {
    const next = new Set(open);
    if (to) next.add(row);
    else next.delete(row);
    setOpen(next);
  };
  const go = (place: number) => {
    const next = Math.min(Math.min(rows.length, most) - 1, Math.max(0, place));
    setAt(next);
    (body.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  const keyed = (event: KeyboardEvent, row: number, place: number) => {
    const moves: Record<string, () => void> = {
      ArrowDown: () => go(place + 1),
      ArrowUp: () => go(place - 1),
      Home: () => go(0),
      End: () => go(rows.length),
      ArrowRight: () => (holds.has(row) && !open.has(row) ? toggle(row, true) : go(place + 1)),
      ArrowLeft: () => (holds.has(row) && open.has(row) ? toggle(row, false) : go(rows.indexOf(parent[row] ?? -1))),
      Enter: () => props.onSelect(table.text("layer", row)),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  };
  return (
    <section class="modules">
      <div class="table-top">
        <h2 title={table.page.row}>{visible(table.page.title)}</h2>
        <div class="table-tools">
          <Filter of={table.page.title} text={search} onText={props.onSearch} />
        </div>
      </div>
      {search && !rows.length && <p class="no-rows">No module's name or class has “{visible(search)}”.</p>}
      <div class="scrolled modules-scroll">
        <table role="treegrid" aria-label={table.page.title}>
          <thead>
            <tr>
              <th>module</th>
              {columns.map((column) => (
                <th key={column.name} class="number" title={meaning.get(column.name)}>
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody ref={body}>
            {rows.slice(0, most).map((row, place) => {
              const layer = table.text("layer", row);
              const level = depth[row] ?? 0;
              return (
                <tr
                  key={row}
                  role="row"
                  tabIndex={place === Math.min(at, rows.length - 1) ? 0 : -1}
                  aria-level={level + 1}
                  aria-expanded={holds.has(row) ? open.has(row) || !!hit : undefined}
                  aria-selected={layer !== null && layer === props.selected}
                  class={hit?.[row] ? "hit" : undefined}
                  onFocus={() => setAt(place)}
                  onKeyDown={(event) => keyed(event, row, place)}
                  onClick={() => layer !== null && props.onSelect(layer)}
                >
                  <th scope="row" style={{ paddingLeft: `${4 + level * 14}px` }} title={visible(layer ?? table.text("module", row) ?? "")}>
                    <button
                      type="button"
                      class="twist"
                      tabIndex={-1}
                      aria-hidden="true"
                      onClick={(event) => {
                        event.stopPropagation();
                        toggle(row);
                      }}
                    >
                      {holds.has(row) && !hit ? (open.has(row) ? "▾" : "▸") : ""}
                    </button>
                    <span class={layer === null ? "quiet" : undefined}>{visible(table.text("module", row) ?? "?")}</span>
                    {table.text("module_type", row) && <small> {visible(table.text("module_type", row)!)}</small>}
                  </th>
                  {columns.map((column) => (
                    <Cell key={column.name} column={column} value={table.of(column.name)[row]} />
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {rows.length > most && (
        <button type="button" onClick={() => setMost(most + DRAWN)}>
          {(rows.length - most).toLocaleString("en")} more rows
        </button>
      )}
      {!table.complete && (
        <p class="chart-note">
          {table.many.toLocaleString("en")} of {table.page.total.toLocaleString("en")} modules are here; the sums are of all.
        </p>
      )}
    </section>
  );
}

function Cell({ column, value }: { column: Column; value: unknown }) {
  if (value === null || value === undefined) return <td class="number" />;
  const wide = column.name === "share" ? Math.min(1, Number(value)) : null;
  return (
    <td class="number" title={exact(value, column.unit)}>
      {wide === null ? <span>{show(value, column.unit)}</span> : <Share share={wide}>{show(value, column.unit)}</Share>}
    </td>
  );
}
