// The page Distributed: communication and what it overlaps with by rank, waiting and who causes it, bandwidth.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Page, PageProps } from "../page";
import { useAnswer } from "../parts/answer";
import { type Bar, Bars, type Part } from "../parts/charts/bars";
import { type Curve, Curves } from "../parts/charts/curves";
import { HeatMap } from "../parts/charts/heat_map";
import { exact, show, visible } from "../parts/format";
import { timelineOf } from "../parts/name";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { Tabs } from "../parts/tabs";
import { integer, offsets, useWhole, type Whole } from "../parts/whole";

const COMPUTES = "--series-1";
const BOTH = "--series-3";
const EXPOSED = "--series-2";
const NEITHER = "--k-outside";
/** Bars drawn at most; the tables have every rank. */
const RANKS = 64;

interface Question {
  /** In the address. */
  name: string;
  text: string;
  chart?: (props: Pick<PageProps, "source" | "about">) => ComponentChildren;
  /** The reports that answer it, with their order at first. */
  tables: Record<string, string>;
}

/** What one asks about a job, in the order in which one does. */
const QUESTIONS: Question[] = [
  {
    name: "time",
    text: "What does communication cost?",
    chart: ({ source }) => (
      <>
        <ByRank source={source} />
        <Overlap source={source} />
      </>
    ),
    tables: { communication: "", collectives: "-time", overlap: "" },
  },
  {
    name: "late",
    text: "Who is late, and why?",
    chart: ({ source }) => (
      <>
        <Late source={source} />
        <Waits source={source} />
      </>
    ),
    tables: { stragglers: "-caused_waiting", late_causes: "-caused_waiting", collective_waits: "-waiting_time", slowest_ranks: "", step_imbalance: "" },
  },
  {
    name: "speed",
    text: "How fast do bytes move?",
    chart: ({ source, about }) => <Bandwidth source={source} start={about.span?.start ?? null} />,
    tables: { collective_bandwidth: "-transfer_time", bandwidth: "" },
  },
  {
    name: "loads",
    text: "Is the work even?",
    tables: { rank_loads: "-received_bytes", rank_pairs: "-bytes", rank_outliers: "" },
  },
  {
    name: "faults",
    text: "What is wrong or missing?",
    tables: { collective_faults: "", last_collectives: "", collective_ends: "", groups: "", meshes: "", clocks: "" },
  },
];

function Distributed({ source, about, params }: PageProps) {
  const table = params.get("table") ?? "";
  const asked = QUESTIONS.find((one) => one.name === params.get("ask")) ?? QUESTIONS.find((one) => Object.hasOwn(one.tables, table)) ?? QUESTIONS[0]!;
  return (
    <>
      <Tabs label="Questions about the job" name="ask" now={asked.name} of={QUESTIONS.map(({ name, text }) => ({ value: name, text }))} clears={["table"]} />
      {asked.chart?.({ source, about })}
      {Object.entries(asked.tables).map(([name, sort]) => (
        <DataTable key={name} source={source} name={name} sort={sort} height={320} />
      ))}
    </>
  );
}

function rankOf(table: Whole, row: number): string {
  const rank = table.number("rank", row);
  return rank === null ? `process ${table.number("process", row)}` : `rank ${rank}`;
}

/** The time of each rank's window in four parts that add up to it. */
function ByRank({ source }: { source: PageProps["source"] }) {
  const answered = useWhole(source, "communication", {}, 5_000);
  return (
    <Await of={answered}>
      {(table) => {
        if (!table.many) return <p class="chart-note">{visible(table.page.empty)}</p>;
        const bars: Bar[] = [];
        let unknown = 0;
        for (let row = 0; row < Math.min(table.many, RANKS); row++) {
          const [window, communication, computation, overlap] = ["window", "communication_time", "computation_time", "overlap_time"].map(
            (column) => table.number(column, row),
          );
          const name = rankOf(table, row);
          if (window == null || communication == null || computation == null || overlap == null) {
            unknown++;
            bars.push({ name, value: null, title: `${name}: its communication's time is not known; only calls were recorded` });
            continue;
          }
          const part = (text: string, value: number, colour: string): Part => ({
            name: text,
            value,
            colour,
            title: `${name}, ${text}: ${show(value, "ns")} (${exact(value, "ns")})`,
          });
          bars.push({
            name,
            value: window,
            parts: [
              part("computation alone", computation - overlap, COMPUTES),
              part("both at once", overlap, BOTH),
              part("exposed communication", communication - overlap, EXPOSED),
              part("neither", window - communication - computation + overlap, NEITHER),
            ],
            note: `exposed ${show(window ? (communication - overlap) / window : 0, "fraction")}`,
          });
        }
        return (
          <>
            <Bars
              title="Where each rank's time went"
              bars={bars}
              show={(value) => show(value, "ns")}
              exact={(value) => exact(value, "ns")}
              legend={[
                { name: "computation alone", colour: COMPUTES },
                { name: "both at once", colour: BOTH },
                { name: "exposed communication", colour: EXPOSED },
                { name: "neither", colour: NEITHER },
              ]}
            />
            {unknown > 0 && (
              <p class="chart-note">
                Of {unknown} {unknown > 1 ? "ranks" : "rank"} only the calls of collectives were recorded, not how long they ran.
              </p>
            )}
            {table.many > RANKS && (
              <p class="chart-note">
                {RANKS} of {table.page.total.toLocaleString("en")} ranks are drawn; the table By rank has all.
              </p>
            )}
          </>
        );
      }}
    </Await>
  );
}

const WORK: Record<string, string> = {};
const COLOURS = ["--series-1", "--series-2", "--series-4", "--series-3", "--series-5", "--k-matrix", "--k-attention"];

/** What ran at once on each device; the parts add up to its busy time. */
function Overlap({ source }: { source: PageProps["source"] }) {
  const answered = useWhole(source, "overlap", {}, 5_000);
  return (
    <Await of={answered}>
      {(table) => {
        const devices = new Map<string, Part[]>();
        for (let row = 0; row < table.many; row++) {
          const work = table.text("running_work", row) ?? "?";
          WORK[work] ??= COLOURS[Object.keys(WORK).length % COLOURS.length]!;
          const place = `process ${table.number("process", row)}, device ${table.number("device", row)}`;
          const value = table.number("time", row);
          if (value === null) continue;
          const parts = devices.get(place) ?? [];
          if (value) parts.push({ name: work, value, colour: WORK[work]! });
          devices.set(place, parts);
        }
        const bars: Bar[] = [...devices]
          .filter(([, parts]) => parts.length)
          .slice(0, RANKS)
          .map(([name, parts]) => ({ name, parts, value: parts.reduce((sum, part) => sum + part.value, 0) }));
        if (!bars.length) return null;
        const seen = new Set(bars.flatMap((bar) => bar.parts!.map((part) => part.name)));
        return (
          <Bars
            title="What ran at once, of each device's busy time"
            bars={bars}
            show={(value) => show(value, "ns")}
            exact={(value) => exact(value, "ns")}
            legend={[...seen].map((name) => ({ name, colour: WORK[name]! }))}
          />
        );
      }}
    </Await>
  );
}

/** Who entered collectives last, and the waiting of others that it caused. */
function Late({ source }: { source: PageProps["source"] }) {
  const answered = useWhole(source, "stragglers", { sort: "-caused_waiting" }, RANKS);
  return (
    <Await of={answered}>
      {(table) => (
        <Bars
          title="Waiting that each rank caused"
          bars={Array.from({ length: table.many }, (_, row) => ({
            name: rankOf(table, row),
            value: table.number("caused_waiting", row),
            colour: EXPOSED,
            note: `last in ${table.number("last", row)} of ${table.number("compared", row)}`,
          }))}
          show={(value) => show(value, "ns")}
          exact={(value) => exact(value, "ns")}
          empty={visible(table.page.empty)}
        />
      )}
    </Await>
  );
}

interface WaitsAnswer {
  ranks: string[];
  /** Row: the rank that entered last; column: the rank that waited for it; ns, null if never. */
  waiting: (number | null)[][];
  /** Ranks that are left out, and the waiting (ns) in their cells. */
  left_out: { ranks: number; time: number };
}

/** Which rank waited for which. */
function Waits({ source }: { source: PageProps["source"] }) {
  const answered = useAnswer<WaitsAnswer>(source, "waits");
  return (
    <Await of={answered}>
      {(answer) =>
        answer.ranks.length ? (
          <>
            <HeatMap
              title="Who waited for whom in collectives"
              rows={answer.ranks}
              columns={answer.ranks}
              values={answer.waiting}
              show={(value) => show(value, "ns")}
              rowName="the rank that entered last"
              columnName="the rank that waited for it"
            />
            {answer.left_out.ranks > 0 && (
              <p class="chart-note">
                {answer.left_out.ranks} ranks with the least waiting are not drawn ({show(answer.left_out.time, "ns")}).
              </p>
            )}
          </>
        ) : null
      }
    </Await>
  );
}

/** The bandwidth of copies over time, by kind, on one axis of time. */
function Bandwidth({ source, start }: { source: PageProps["source"]; start: unknown }) {
  const answered = useWhole(source, "bandwidth_curve", {}, 20_000);
  return <Await of={answered}>{(table) => <Drawn table={table} start={start} />}</Await>;
}

function Drawn({ table, start }: { table: Whole; start: unknown }) {
  const first = start ?? table.of("time")[0];
  const { x, curves } = useMemo(() => bandwidths(table, first), [table, first]);
  if (!table.many) return <p class="chart-note">{visible(table.page.empty)}</p>;
  const origin = integer(first) ?? 0n;
  return (
    <Curves
      title="Bandwidth of copies and sets"
      x={x}
      curves={curves}
      showX={(ns) => show(ns, "ns")}
      show={(value) => show(value, "bytes/s")}
      stepped
      height={170}
      onRange={(from, to) => {
        location.hash = timelineOf(String(origin + BigInt(Math.round(from))), String(origin + BigInt(Math.round(to))));
      }}
      note={`All devices of a kind added up. Drag over a span to open it on the timeline.${table.complete ? "" : ` Only the first ${table.many.toLocaleString("en")} of ${table.page.total.toLocaleString("en")} changes are drawn.`}`}
    />
  );
}

/** The curves by kind: at each change the sum of what each process's and device's bandwidth then is. */
export function bandwidths(table: Whole, first: unknown): { x: number[]; curves: Curve[] } {
  const time = offsets(table.of("time"), first);
  const rows = time.flatMap((at, row) => (at === null ? [] : [{ at, row }])).sort((a, b) => a.at - b.at);
  const x: number[] = [];
  const now = new Map<string, number>();
  const kinds = new Map<string, number[]>();
  const sums = new Map<string, number>();
  for (const { at, row } of rows) {
    const kind = table.text("kind", row) ?? "?";
    const key = `${table.text("process", row)} ${table.text("device", row)} ${kind}`;
    const value = table.number("moving_bandwidth", row) ?? 0;
    sums.set(kind, (sums.get(kind) ?? 0) + value - (now.get(key) ?? 0));
    now.set(key, value);
    if (!kinds.has(kind)) kinds.set(kind, new Array<number>(x.length).fill(0));
    if (x[x.length - 1] !== at) {
      x.push(at);
      for (const [name, values] of kinds) values.push(Math.max(0, sums.get(name) ?? 0));
    } else {
      for (const [name, values] of kinds) {
        values.length = x.length;
        values[x.length - 1] = Math.max(0, sums.get(name) ?? 0);
      }
    }
  }
  return { x, curves: [...kinds].slice(0, 6).map(([name, values]) => ({ name, values })) };
}

export const PAGE: Page = { name: "distributed", title: "Distributed", key: "d", component: Distributed };
