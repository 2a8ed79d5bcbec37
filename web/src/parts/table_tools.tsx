// What stands above a table: filters, the choice of columns, copying, and the rows as CSV.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Params, Source } from "../source";
import { wordsFor } from "./answer";
import { unfit } from "./columns";
import { visible, words } from "./format";
import { cut } from "./name";
import { allRows, type Row, type TableColumn, type TablePage } from "./rows";

/** Rows that one CSV takes at most: more do not fit a browser's memory well. */
const MOST = 1_000_000;
const MOST_COPIED = 1_000;
/** Tables with fewer rows are read at a glance: they have no field. */
const FILTERED = 8;
/** Typing waits this long, in ms, before the rows are asked for. */
const TYPING = 200;

export type Where = Record<string, string | number | boolean | null>;

interface Props {
  source: Source;
  page: TablePage;
  params: Params;
  columns: TableColumn[];
  fixed: Where;
  where: Where;
  onWhere: (where: Where) => void;
  /** Only rows with this text; undefined where the page has chosen them. */
  text: string | undefined;
  onText: (text: string) => void;
  chosen: string[] | undefined;
  onChosen: (columns: string[] | undefined) => void;
}

export function Tools(props: Props) {
  const { page, where, onWhere, columns } = props;
  const [said, setSaid] = useState("");
  const [abort, setAbort] = useState<AbortController | null>(null);

  const fetch = async (most: number, done: (rows: Row[], of: number) => string | Promise<string>) => {
    const now = new AbortController();
    setAbort(now);
    try {
      const found = await allRows(props.source, props.params, most, (rows, of) => setSaid(`${rows.toLocaleString("en")} of ${Math.min(of, most).toLocaleString("en")} rows …`), now.signal);
      setSaid(await done(found.rows, found.page.matching));
    } catch (failure) {
      setSaid(now.signal.aborted ? "stopped" : wordsFor(failure));
    } finally {
      setAbort(null);
    }
  };
  const left = (rows: Row[], of: number) => (rows.length < of ? ` (the first of ${of.toLocaleString("en")})` : "");

  return (
    <div class="table-tools">
      {Object.entries(where).map(([name, value]) => (
        <span class="chip" key={name}>
          {words(name)} = {value === null ? "none" : visible(cut(String(value), 60))}
          <button
            type="button"
            aria-label={`Remove the filter of ${words(name)}`}
            onClick={() => onWhere(Object.fromEntries(Object.entries(where).filter(([other]) => other !== name)))}
          >
            ×
          </button>
        </span>
      ))}
      <span class="said" role="status">
        {said}
      </span>
      {abort && (
        <button type="button" onClick={() => abort.abort()}>
          Stop
        </button>
      )}
      {props.text !== undefined && (page.total >= FILTERED || props.text) && <Filter of={page.title} text={props.text} onText={props.onText} />}
      <ColumnChoice {...props} />
      <button
        type="button"
        title={`Copy the matching rows, at most ${MOST_COPIED}, with tabs between the columns shown`}
        disabled={abort !== null}
        onClick={() =>
          fetch(MOST_COPIED, async (rows, of) => {
            await navigator.clipboard.writeText(tabbed(columns, rows));
            return `${rows.length.toLocaleString("en")} rows copied${left(rows, of)}`;
          })
        }
      >
        Copy
      </button>
      <button
        type="button"
        title="Save the matching rows with all columns, in nanoseconds and bytes, as CSV"
        disabled={abort !== null}
        onClick={() =>
          fetch(MOST, (rows, of) => {
            const risky = save(page, rows);
            return `${rows.length.toLocaleString("en")} rows saved${left(rows, of)}${risky ? `; ${risky} cells begin with =, +, - or @, which a spreadsheet runs as formulas: import them as text` : ""}`;
          })
        }
      >
        CSV
      </button>
    </div>
  );
}

/** Leaves rows of this table alone that have the text; the search above the pages leaves all as they are. */
export function Filter({ of, text, onText }: { of: string; text: string; onText: (text: string) => void }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => onText(typed), TYPING);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <input
      class="filter"
      type="search"
      autocomplete="off"
      spellcheck={false}
      maxLength={200}
      placeholder="rows with …"
      aria-label={`Only rows of “${visible(of)}” with this text`}
      value={typed}
      onInput={(event) => setTyped(event.currentTarget.value)}
    />
  );
}

function ColumnChoice({ page, columns, chosen, onChosen }: Props) {
  const details = useRef<HTMLDetailsElement>(null);
  const shown = new Set(columns.map((column) => column.name));
  const bare = unfit(page);
  const set = (name: string, on: boolean) => {
    const names = page.columns.map((column) => column.name).filter((other) => (other === name ? on : shown.has(other)));
    if (names.length) onChosen(names);
  };
  return (
    <details
      class="choice"
      ref={details}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !details.current?.open) return;
        details.current.open = false;
        details.current.querySelector("summary")?.focus();
      }}
    >
      <summary>Columns</summary>
      <div class="choices">
        {page.columns.map((column) => (
          <label key={column.name} title={column.meaning}>
            <input type="checkbox" checked={shown.has(column.name)} onChange={(event) => set(column.name, event.currentTarget.checked)} />
            {column.heading ?? words(column.name)}
            {bare.has(column.name) && <span class="quiet">nothing here</span>}
          </label>
        ))}
        {chosen && (
          <button type="button" onClick={() => onChosen(undefined)}>
            As at first
          </button>
        )}
      </div>
    </details>
  );
}

function tabbed(columns: TableColumn[], rows: Row[]): string {
  const clean = (value: unknown) => (value === null || value === undefined ? "" : visible(String(value)));
  return [columns.map((column) => column.name), ...rows.map((row) => columns.map((column) => clean(row[column.name])))].map((line) => line.join("\t")).join("\n");
}

/** The rows as CSV: a null is an empty field, a list is JSON. */
export function csv(columns: TableColumn[], rows: Row[]): string {
  const field = (value: unknown) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) || text === "" ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const lines = [columns.map((column) => column.name), ...rows.map((row) => columns.map((column) => row[column.name]))];
  return lines.map((line) => line.map(field).join(",")).join("\n") + "\n";
}

/** Saves a file of the rows; returns how many cells a spreadsheet would run as formulas. */
function save(page: TablePage, rows: Row[]): number {
  const place = URL.createObjectURL(new Blob([csv(page.columns, rows)], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = place;
  link.download = `${page.name.replace(/[^\w-]/g, "_")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(place), 60_000);
  const texts = page.columns.filter((column) => column.kind === "text").map((column) => column.name);
  return rows.reduce((count, row) => count + texts.filter((name) => /^\s*[=+@-]/.test(String(row[name] ?? ""))).length, 0);
}
