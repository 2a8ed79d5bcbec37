// The table of every page: any number of rows, sorted and searched where the data is, drawn as they come into sight.
//
//   <DataTable source={source} name="operators" onSelect={(row) => …} />
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { intoView } from "../framed";
import type { Source } from "../source";
import { route, selection, setParams } from "../state";
import { useStart } from "./about";
import { Cell, cellText } from "./cell";
import { chosenColumns, type Placed, placed, titleOf, unfit } from "./columns";
import { exact, show, visible, words } from "./format";
import { useKernelNames } from "./kernel_names";
import { LeftOutRows } from "./left_out";
import { cut } from "./name";
import { type Row, type TableColumn, type TablePage, useRows } from "./rows";
import { Failed } from "./states";
import { Tools, type Where } from "./table_tools";
import { useScroll } from "./scroll";
import "./table.css";

export interface DataTableProps {
  source: Source;
  /** The report, by its name. */
  name: string;
  /** Told apart from other tables of the page in the address; the name if not given. */
  id?: string;
  /** Only rows with these values. */
  where?: Where;
  /** Only rows with this text; if not given, what its own field says. */
  q?: string;
  /** The order at first: `device_time`, or `-device_time` for the largest first. */
  sort?: string;
  /** The selected row is the one that has all these values. */
  selected?: Row | null;
  onSelect?: (row: Row, index: number) => void;
  /** Columns at first, in place of the report's. */
  columns?: readonly string[];
  /** The most px that it takes in height. */
  height?: number;
  /** In place of the report's title; "" for none. */
  title?: string;
  /** More parameters of the question. */
  params?: Record<string, string>;
  /** In place of the report's words if there are no rows. */
  empty?: string;
  /** Where no row has a value of these columns, the rows' reason stands in place of the table. */
  needs?: readonly string[];
}

export const ROW = 26;
const HEAD = 42;
const FOOT = 27;
/** Px beside the columns: borders and the scroll bar. */
const EDGE = 18;

export function DataTable(props: DataTableProps) {
  const { source, name } = props;
  const id = props.id ?? name;
  const here = route().params;
  const own = parsed(here.get(`${id}_where`));
  const sort = here.get(`${id}_sort`) ?? props.sort;
  const q = props.q || (here.get(`${id}_q`) ?? "");
  const where: Where = { ...own, ...props.where };
  const params = {
    ...selection(),
    ...props.params,
    name,
    sort: sort || undefined,
    q: q || undefined,
    where: Object.keys(where).length ? JSON.stringify(where) : undefined,
  };
  const shown = useRows(source, params);
  const { rows } = shown;
  const page = rows.first;
  const [chosen, setChosen] = useState<string[] | undefined>();

  if (rows.error !== undefined) return <Failed again={shown.again}>{visible(rows.error)}</Failed>;
  if (!page) return <div class="table waiting" aria-busy="true" />;

  const why = props.needs && bareOf(page, props.needs);
  const bare = chosen ? new Set<string>() : unfit(page);
  const named = (chosen ?? props.columns) as string[] | undefined;
  const kept = chosenColumns(page, named, props.columns === undefined).filter((column) => !bare.has(column.name) || column.name in where);
  const once = chosen ? new Map<TableColumn, string>() : saidOnce(page, kept);
  const apart = kept.filter((column) => !once.has(column) || column.name in where);
  const columns = apart.length ? apart : chosenColumns(page, named, props.columns === undefined);
  const title = props.title ?? page.title;
  return (
    <section class={`table${shown.stale ? " awaited" : ""}`} aria-busy={shown.stale}>
      <div class="table-top">
        {title && <h2 title={page.row}>{visible(title)}</h2>}
        {page.total > 0 && !why && (
          <Tools
            source={source}
            page={page}
            params={params}
            columns={columns}
            fixed={props.where ?? {}}
            where={own}
            text={props.q ? undefined : q}
            onText={(next) => setParams({ [`${id}_q`]: next })}
            onWhere={(next) => setParams({ [`${id}_where`]: Object.keys(next).length ? JSON.stringify(next) : undefined })}
            chosen={chosen}
            onChosen={setChosen}
          />
        )}
      </div>
      <LeftOutRows page={page} />
      {why ? (
        <p class="no-rows">{visible(why)}</p>
      ) : page.matching === 0 ? (
        <p class="no-rows">{visible(page.total === 0 ? (props.empty ?? page.empty) : nothing(page, q, own))}</p>
      ) : (
        <Grid {...props} label={title || page.title} id={id} columns={columns} shown={shown} page={page} sort={sort} onWhere={(column, value) => setParams({ [`${id}_where`]: JSON.stringify({ ...own, [column]: value }) })} />
      )}
      {[...once].map(([column, reason]) => (
        <p class="chart-note" key={column.name}>
          {column.heading ?? words(column.name)}: {visible(reason)}
        </p>
      ))}
    </section>
  );
}

/** The reasons that all rows share, which would be cut in each. */
function saidOnce(page: TablePage, columns: TableColumn[]): Map<TableColumn, string> {
  const once = new Map<TableColumn, string>();
  for (const column of columns) {
    const texts = page.values[column.name] ?? [];
    const [text] = texts;
    const whole = page.matching > 1 && texts.length === page.matching;
    if (/reason$/.test(column.name) && whole && typeof text === "string" && new Set(texts).size === 1) once.set(column, page.words?.[column.name]?.[text] ?? text);
  }
  return once;
}

/** The one reason of all rows that have no value of these columns; null where a row has one. */
function bareOf(page: TablePage, needs: readonly string[]): string | null {
  if (page.columns.some((column) => needs.includes(column.name) && column.fits !== false)) return null;
  const reasons = [...new Set(page.values["reason"] ?? [])];
  return reasons.length === 1 && typeof reasons[0] === "string" ? reasons[0] : null;
}

function nothing(page: TablePage, q: string, own: Where): string {
  const by = [q && `the text “${cut(q, 60)}”`, Object.keys(own).length && "the filters"].filter(Boolean).join(" and ");
  return by ? `None of the ${page.total.toLocaleString("en")} rows match ${by}.` : `None of the ${page.total.toLocaleString("en")} rows belong here.`;
}

/** A filter from the address; what is no filter is ignored. */
function parsed(text: string | null): Where {
  try {
    const given: unknown = JSON.parse(text ?? "{}");
    if (given === null || typeof given !== "object" || Array.isArray(given)) return {};
    const simple = Object.entries(given).filter(([, value]) => value === null || ["string", "number", "boolean"].includes(typeof value));
    return Object.fromEntries(simple.slice(0, 8)) as Where;
  } catch {
    return {};
  }
}

interface GridProps extends Omit<DataTableProps, "columns"> {
  label: string;
  id: string;
  columns: ReturnType<typeof chosenColumns>;
  shown: ReturnType<typeof useRows>;
  page: TablePage;
  onWhere: (column: string, value: string | number | boolean | null) => void;
}

function Grid({ name, id, label, columns, shown, page, sort, selected, onSelect, onWhere, height }: GridProps) {
  const { rows } = shown;
  const start = useStart();
  const box = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState<{ row: number; column: number }>({ row: 0, column: 0 });
  const [used, setUsed] = useState(false);
  const scroll = useScroll(box, rows.matching, ROW, HEAD + (laidSums(columns, page) ? FOOT : 0), rows.key);
  const names = useKernelNames();
  const shares = (page.values["share"] ?? []).filter((value): value is number => typeof value === "number");
  const full = Math.max(...shares, 0) || 1;
  const shownNames = columns.map((column) => column.name).join(" ");
  const laid = useMemo(() => placed(columns, page, start, scroll.room - EDGE, names.short), [shownNames, page, start, scroll.room, names.short]);
  const wide = laid.reduce((sum, column) => sum + column.width, 0);
  const template = laid.map((column) => `${column.width}px`).join(" ");
  const summed = laidSums(columns, page);
  const foot = summed ? FOOT : 0;
  const at = { row: Math.min(active.row, rows.matching - 1), column: Math.min(active.column, laid.length - 1) };

  useLayoutEffect(() => {
    rows.need(scroll.first, scroll.last);
  });
  useLayoutEffect(() => {
    if (used) intoView(box.current?.querySelector(`#${cellId(id, at.row, at.column)}`));
  }, [at.row, at.column]);

  const sortBy = (column: Placed) => {
    const [up, down] = [column.name, `-${column.name}`];
    const next = column.right ? (sort === down ? up : sort === up ? undefined : down) : sort === up ? down : sort === down ? undefined : up;
    setParams({ [`${id}_sort`]: next });
  };
  const move = (row: number, column: number) => {
    const to = { row: Math.max(-1, Math.min(row, rows.matching - 1)), column: Math.max(0, Math.min(column, laid.length - 1)) };
    setActive(to);
    setUsed(true);
    if (to.row >= 0) scroll.show(to.row);
  };
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const column = laid[at.column]!;
    const row = at.row >= 0 ? rows.at(at.row) : undefined;
    const screen = Math.max(1, scroll.fits - 1);
    const moves: Record<string, [number, number]> = {
      ArrowDown: [at.row + 1, at.column],
      ArrowUp: [at.row - 1, at.column],
      ArrowRight: [at.row, at.column + 1],
      ArrowLeft: [at.row, at.column - 1],
      PageDown: [at.row + screen, at.column],
      PageUp: [Math.max(0, at.row - screen), at.column],
      Home: [0, at.column],
      End: [rows.matching - 1, at.column],
    };
    const to = moves[event.key];
    if (to) move(...to);
    else if (event.key === "Enter" && at.row < 0) sortBy(column);
    else if (event.key === "Enter" && row && onSelect) onSelect(row, at.row);
    else if (event.key === "Enter" && row) box.current?.querySelector<HTMLAnchorElement>(`#${cellId(id, at.row, at.column)} a`)?.click();
    else if (event.key === "c" && row) void navigator.clipboard?.writeText(names.whole(cellText(column, row)));
    else if (event.key === "f" && row && filterable(column, row)) onWhere(column.name, recorded(page, column.name, row[column.name] ?? null));
    else return;
    event.preventDefault();
  };

  const active_row = at.row >= 0 ? rows.at(at.row) : undefined;
  const drawn = [];
  for (let index = scroll.first; index < scroll.last; index++) {
    const row = rows.at(index);
    const is = row !== undefined && selected != null && Object.entries(selected).every(([key, value]) => same(row[key], value));
    drawn.push(
      <div
        key={index}
        role="row"
        aria-rowindex={index + 2}
        aria-selected={onSelect ? is : undefined}
        class={`row${is ? " selected" : ""}${index % 2 ? " odd" : ""}`}
        style={{ gridTemplateColumns: template, transform: `translateY(${scroll.top(index)}px)` }}
        onClick={(event) => {
          const place = (event.target as Element).closest<HTMLElement>("[data-column]")?.dataset["column"];
          setActive({ row: index, column: place ? Number(place) : at.column });
          setUsed(true);
          if (row && onSelect && !(event.target as Element).closest("a")) onSelect(row, index);
        }}
      >
        {laid.map((column, place) => (
          <div
            key={column.name}
            id={cellId(id, index, place)}
            role="gridcell"
            aria-colindex={place + 1}
            data-column={place}
            class={`cell${column.right ? " right" : ""}${used && index === at.row && place === at.column ? " active" : ""}`}
          >
            {row ? <Cell table={name} column={column} row={row} start={start} links={!onSelect} full={full} /> : <span class="quiet">…</span>}
          </div>
        ))}
      </div>,
    );
  }

  const most = height ?? Math.max(220, Math.min(560, window.innerHeight * 0.6));
  const edge = rows.matching * ROW + HEAD + foot > most ? EDGE : 2;
  return (
    <>
      <div class={scroll.further ? "grid-box further" : "grid-box"}>
        <div
          ref={box}
          class={`grid${onSelect ? " selects" : ""}`}
          role="grid"
          aria-label={visible(label)}
          aria-rowcount={rows.matching + 2}
          aria-colcount={laid.length}
          aria-activedescendant={cellId(id, at.row, at.column)}
          tabIndex={0}
          style={{ height: `${Math.min(most, rows.matching * ROW + HEAD + foot + scroll.bar)}px`, width: `${wide + edge}px` }}
          onKeyDown={press}
          onFocus={() => setUsed(true)}
        >
          <div class="sizer" role="presentation" style={{ height: `${scroll.height + HEAD + foot}px`, minWidth: `${wide}px` }}>
            <div class="head row" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
              {laid.map((column, place) => (
                <div
                  key={column.name}
                  id={cellId(id, -1, place)}
                  role="columnheader"
                  aria-colindex={place + 1}
                  aria-sort={sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : "none"}
                  class={`cell${column.right ? " right" : ""}${used && at.row === -1 && at.column === place ? " active" : ""}`}
                  title={visible(titleOf(column))}
                  onClick={() => sortBy(column)}
                >
                  <span>{column.heading}</span>
                  <span class="arrow" aria-hidden="true">
                    {sort === column.name ? "▲" : sort === `-${column.name}` ? "▼" : ""}
                  </span>
                </div>
              ))}
            </div>
            <div class="body" role="rowgroup">
              {drawn}
            </div>
            {summed && <Sums page={page} columns={laid} template={template} />}
          </div>
        </div>
      </div>
      <p class="under">
        <span>{counted(page)}</span>
        {used && active_row && at.column >= 0 && <ActiveCell column={laid[at.column]!} row={active_row} />}
      </p>
    </>
  );
}

function laidSums(columns: { name: string }[], page: TablePage): boolean {
  return page.matching > 1 && columns.some((column) => column.name in page.sums);
}

function ActiveCell({ column, row }: { column: Placed; row: Row }) {
  const { whole } = useKernelNames();
  return (
    <span class="whole" aria-live="polite">
      <span class="quiet">{column.heading}</span> {visible(cut(whole(cellText(column, row)), 4_000))}
    </span>
  );
}

function Sums({ page, columns, template }: { page: TablePage; columns: Placed[]; template: string }) {
  return (
    <div class="sums row" role="row" aria-rowindex={page.matching + 2} style={{ gridTemplateColumns: template }}>
      {columns.map((column, place) => {
        const known = column.name in page.sums;
        const sum = page.sums[column.name];
        return (
          <div key={column.name} role="gridcell" aria-colindex={place + 1} class={`cell${column.right ? " right" : ""}`}>
            {known ? (
              <span title={sum === null ? "unknown in every row" : `${exact(sum, column.unit)}${page.matching < page.total ? ` of ${exact(page.sums_all[column.name], column.unit)}` : ""}`}>{show(sum, column.unit)}</span>
            ) : place === 0 ? (
              <span>sum</span>
            ) : null}
          </div>
        );
      })}
    </div>
  );
}

/** "12 of 62 rows, 86.9 ms of 595 ms device time". */
function counted(page: TablePage): string {
  const number = (count: number) => count.toLocaleString("en");
  const rows = page.matching < page.total ? `${number(page.matching)} of ${number(page.total)} rows` : `${number(page.total)} ${page.total === 1 ? "row" : "rows"}`;
  const timed = page.columns.find((column) => column.unit === "ns" && page.sums[column.name] != null && (page.shown.length === 0 || page.shown.includes(column.name)));
  if (!timed || page.matching === page.total) return rows;
  return `${rows}, ${show(page.sums[timed.name], "ns")} of ${show(page.sums_all[timed.name], "ns")} ${timed.name.replace(/_/g, " ")}`;
}

/** A value as the table has it, of one that is shown in a vendor's words. */
function recorded(page: TablePage, column: string, value: unknown): string | number | boolean | null {
  const words = Object.entries(page.words?.[column] ?? {});
  return (words.find(([, said]) => said === value)?.[0] ?? value) as string | number | boolean | null;
}

function filterable(column: Placed, row: Row): boolean {
  return column.kind !== "list" && !(typeof row[column.name] === "number" && !Number.isInteger(row[column.name]));
}

function same(one: unknown, other: unknown): boolean {
  return one === other || (one !== null && other !== null && one !== undefined && other !== undefined && String(one) === String(other));
}

function cellId(table: string, row: number, column: number): string {
  return `t-${table.replace(/\W/g, "-")}-${row < 0 ? "head" : row}-${column}`;
}
