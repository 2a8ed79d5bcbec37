// The search for everything: its results stand under the box as one types, and lead to their pages.
import { useEffect, useRef, useState } from "preact/hooks";
import type { About } from "../page";
import { PAGES } from "../pages";
import type { ReportsAnswer } from "../pages/reports";
import type { Source } from "../source";
import { hrefOf, route, selection, setParams } from "../state";
import { ask, useAsked } from "./answer";
import { exact, show, visible } from "./format";
import { useKernelNames } from "./kernel_names";
import { Middle, PLACES } from "./name";
import type { TablePage } from "./rows";
import "./search.css";

/** Typing waits this long, in ms, before anything is asked. */
const TYPING = 150;
/** Results of a group that are shown. */
const SHOWN = 5;
/** Rows that are asked for: several may have the same name. */
const ASKED = 20;

/** Preact's types know it with a list of the browser's own only. */
const COMBOBOX: object = { role: "combobox" };

const MARKED = "On the timeline";

export interface Hit {
  text: string;
  /** What it took, or what it is. */
  figure: string;
  title: string;
  href: string;
}

interface Group {
  title: string;
  hits: Hit[];
  /** Rows that matched, also those that are not shown. */
  of: number;
}

/** Where names are found: a table, its column of names, and the figure that stands beside. */
const TABLES = [
  { title: "Ops", place: "op", table: "operators", column: "op", figure: "device_total" },
  { title: "Kernels", place: "kernel", table: "kernel", column: "name", figure: "total" },
  { title: "Layers", place: "layer", table: "by_layer", column: "layer", figure: "device_time" },
  { title: "Source lines", place: "source", table: "by_source", column: "source", figure: "device_time" },
];

export function Search({ source, about, value }: { source: Source; about: About; value: string }) {
  const [text, setText] = useState(value);
  const [settled, setSettled] = useState(value);
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const box = useRef<HTMLDivElement>(null);
  const wanted = open && settled.trim() ? settled.trim() : null;
  const key = wanted === null ? null : JSON.stringify([wanted, selection()]);
  const asked = useAsked<Group[]>(source, key, (signal) => groupsOf(source, about, wanted!, signal));
  const groups = wanted === null ? [] : (asked.answer ?? []);
  const hits = groups.flatMap((group) => group.hits);

  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === settled) return;
    const timer = setTimeout(() => {
      setSettled(text);
      setActive(-1);
      setParams({ q: text });
    }, TYPING);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    box.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [active]);

  const go = (hit: Hit | undefined) => {
    if (!hit) return;
    setOpen(false);
    location.hash = hit.href;
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      setOpen(true);
      if (hits.length) setActive((active + (event.key === "ArrowDown" ? 1 : hits.length + (active < 0 ? 1 : 0) - 1)) % hits.length);
      event.preventDefault();
    } else if (event.key === "Enter") {
      // on the timeline Enter goes to the next slice, unless a result is chosen
      if (active >= 0 || route().page !== "timeline") go(hits[Math.max(active, 0)]);
    } else if (event.key === "Escape" && open && text) {
      setOpen(false);
      event.stopPropagation();
    }
  };
  const { short } = useKernelNames();
  let number = -1;
  return (
    <div
      class="field search"
      ref={box}
      onFocusOut={(event) => {
        if (!box.current?.contains(event.relatedTarget as Node | null)) setOpen(false);
      }}
    >
      <label for="search">search</label>
      <input
        id="search"
        type="search"
        {...COMBOBOX}
        aria-expanded={wanted !== null}
        aria-controls="search-results"
        aria-autocomplete="list"
        aria-activedescendant={active >= 0 ? `search-${active}` : undefined}
        autocomplete="off"
        spellcheck={false}
        maxLength={200}
        placeholder="op, kernel, layer … ( / )"
        aria-label="Search for ops, kernels, layers, files, steps and reports"
        value={text}
        onFocus={() => setOpen(true)}
        onInput={(event) => (setText(event.currentTarget.value), setOpen(true))}
        onKeyDown={press}
      />
      {wanted !== null && (
        <div id="search-results" class="results" role="listbox" aria-label="Results" tabIndex={-1} aria-busy={asked.stale}>
          {asked.error !== undefined && <p class="wrong-words">{visible(asked.error)}</p>}
          {asked.loading && <p class="quiet">Searching …</p>}
          {groups.map((group) => (
            <div role="group" aria-label={group.title} key={group.title}>
              <p class="quiet">
                {group.title}
                {group.of > group.hits.length && `, ${group.hits.length} of ${group.of.toLocaleString("en")}`}
              </p>
              {group.hits.map((hit) => {
                number++;
                return (
                  <a role="option" key={hit.href + hit.text} id={`search-${number}`} aria-selected={number === active} href={hit.href} tabIndex={-1} title={hit.title} onClick={() => setOpen(false)}>
                    <Middle text={group.title === "Kernels" ? short(hit.text) : hit.text} title="" />
                    <span class="quiet">{visible(hit.figure)}</span>
                  </a>
                );
              })}
            </div>
          ))}
          {!asked.stale && asked.answer && groups.every((group) => group.title === MARKED) && <p class="quiet">Nothing has “{visible(wanted.slice(0, 60))}” in its name.</p>}
        </div>
      )}
    </div>
  );
}

/** What has `text` in its name, group by group; empty groups are left out. */
async function groupsOf(source: Source, about: About, text: string, signal: AbortSignal): Promise<Group[]> {
  const groups = await Promise.all([
    Promise.resolve(pagesWith(text)),
    stepsWith(about, text),
    ...TABLES.map((table) => inTable(source, table, text, signal)),
    inFiles(source, text, signal),
    inReports(source, text, signal),
    Promise.resolve(marked(about, text)),
  ]);
  return groups.filter((group) => group.hits.length > 0);
}

const has = (text: string, part: string) => text.toLowerCase().includes(part.toLowerCase());

function pagesWith(text: string): Group {
  const hits = PAGES.filter((page) => has(page.title, text)).map((page) => ({ text: page.title, figure: "", title: `g ${page.key}`, href: hrefOf(page.name) }));
  return { title: "Pages", hits: hits.slice(0, SHOWN), of: hits.length };
}

/** "7", "step 7": a step that there is. */
function stepsWith({ steps }: About, text: string): Group {
  const number = Number(/^(?:steps?\s*)?(\d{1,15})$/i.exec(text)?.[1] ?? NaN);
  const there = steps !== null && number >= steps.first && number <= steps.last;
  const hits = there ? [{ text: `step ${number}`, figure: steps.marked ? "" : "an iteration that was found", title: "", href: hrefOf("steps", { step: String(number) }) }] : [];
  return { title: "Steps", hits, of: hits.length };
}

async function inTable(source: Source, of: (typeof TABLES)[number], text: string, signal: AbortSignal): Promise<Group> {
  const page = await ask<TablePage>(source, "table", { ...selection(), name: of.table, q: text, in: of.column, rows: ASKED }, signal);
  const seen = new Set<string>();
  const hits: Hit[] = [];
  const unit = page.columns.find((column) => column.name === of.figure)?.unit ?? "ns";
  (page.values[of.column] ?? []).forEach((value, row) => {
    const name = String(value);
    if (value === null || seen.has(name)) return;
    seen.add(name);
    const figure = page.values[of.figure]?.[row] ?? null;
    hits.push({ text: name, figure: figure === null ? "" : show(figure, unit), title: `${visible(name)}${figure === null ? "" : `: ${exact(figure, unit)}`}`, href: PLACES[of.place]!(name) });
  });
  return { title: of.title, hits: hits.slice(0, SHOWN), of: page.matching };
}

async function inFiles(source: Source, text: string, signal: AbortSignal): Promise<Group> {
  const answer = await ask<{ files: { file: string; time: number | null }[] }>(source, "source", selection(), signal).catch(() => null);
  signal.throwIfAborted();
  const files = (answer?.files ?? []).filter((one) => has(one.file, text));
  const hits = files.slice(0, SHOWN).map((one) => ({ text: one.file, figure: one.time === null ? "" : show(one.time, "ns"), title: visible(one.file), href: hrefOf("source", { file: one.file }) }));
  return { title: "Files", hits, of: files.length };
}

async function inReports(source: Source, text: string, signal: AbortSignal): Promise<Group> {
  const { reports } = await ask<ReportsAnswer>(source, "reports", {}, signal);
  const called = text.replace(/ /g, "_");
  const found = reports.filter((one) => has(one.title, text) || has(one.name, called) || one.other_names.some((name) => has(name, called)));
  const hits = found.slice(0, SHOWN).map((one) => ({ text: one.title, figure: one.name, title: visible(one.row), href: hrefOf("reports", { report: one.name }) }));
  return { title: "Reports", hits, of: found.length };
}

/** The timeline marks the slices with the text, and steps from one to the next. */
function marked(about: About, text: string): Group {
  const hits = about.empty["timeline"] || route().page === "timeline" ? [] : [{ text: `Slices with “${text}”`, figure: "Timeline", title: "n and N step through them", href: hrefOf("timeline", { q: text }) }];
  return { title: MARKED, hits, of: hits.length };
}
