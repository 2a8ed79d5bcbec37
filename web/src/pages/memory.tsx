// The page Memory: what was in use and reserved over time, what it was at the peak, and which ops took it.
import { useMemo } from "preact/hooks";
import type { Page, PageProps } from "../page";
import { type Bar, Bars } from "../parts/charts/bars";
import { type Curve, Curves } from "../parts/charts/curves";
import { Figures } from "../parts/figures";
import { exact, show, since, visible } from "../parts/format";
import { timelineOf } from "../parts/name";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { Tabs } from "../parts/tabs";
import { MemoryWords } from "./memory_words";
import { integer, offsets, useWhole, type Whole } from "../parts/whole";
import { setParams } from "../state";

const CAPTURE =
  "opscope run --memory -- python train.py records it; so does torch.profiler with profile_memory=True, whose trace opscope view opens.";
const TABLES: Record<string, { text: string; sort?: string }> = {
  memory_by_op: { text: "At the peak, by op", sort: "-at_peak" },
  memory_kinds: { text: "At the peak, by kind and layer", sort: "-at_peak" },
  memory_ops: { text: "By op, with ops inside", sort: "-self_allocated" },
  memory_steps: { text: "By step" },
  memory_events: { text: "Blocks", sort: "-bytes" },
};
const KINDS = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5"];
/** Points of the curves: 1,200 a device. */
const MOST = 60_000;

function Memory({ source, about, params }: PageProps) {
  const peaks = useWhole(source, "memory");
  return (
    <Await of={peaks}>
      {(table) =>
        table.page.total ? (
          <Filled table={table} source={source} params={params} start={about.span?.start ?? null} />
        ) : (
          <div class="empty">
            <p>{visible(table.page.empty)}</p>
            <p>{CAPTURE}</p>
          </div>
        )
      }
    </Await>
  );
}

interface FilledProps {
  table: Whole;
  source: PageProps["source"];
  params: URLSearchParams;
  start: unknown;
}

function Filled({ table, source, params, start }: FilledProps) {
  const places = Array.from({ length: table.many }, (_, row) => placeOf(table, row));
  const asked = params.get("of");
  const most = table.numbers("peak_memory").reduce<number>((best, one, row, all) => ((one ?? 0) > (all[best] ?? 0) ? row : best), 0);
  const row = asked !== null && places.includes(asked) ? places.indexOf(asked) : most;
  const place = places[row]!;
  const [process, device] = place.split(":").map(Number);
  const where = { process: process!, device: device! };
  const asTable = params.get("table") ?? "memory_by_op";
  const name = Object.hasOwn(TABLES, asTable) ? asTable : "memory_by_op";
  return (
    <>
      {places.length > 1 && (
        <p>
          <label>
            process and device{" "}
            <select value={place} onChange={(event) => setParams({ of: event.currentTarget.value }, false)}>
              {places.map((one, at) => (
                <option key={one} value={one}>
                  {named(table, at)}, peak {show(table.of("peak_memory")[at], "bytes")}
                </option>
              ))}
            </select>
          </label>
        </p>
      )}
      <MemoryWords source={source} where={where} peak={table.number("peak_memory", row)} at={`at ${since(table.of("peak_time")[row], start as number | null)}`} />
      <Figures
        of={[
          { name: "peak in use", value: table.of("peak_memory")[row], unit: "bytes", note: `at ${since(table.of("peak_time")[row], start as number | null)}` },
          // nothing reserves the host's memory
          ...(device === -1
            ? []
            : [
                { name: "most reserved", value: table.of("reserved")[row], unit: "bytes", why: "the trace has no reserved memory" },
                { name: "reserved and unused, at most", value: table.of("most_unused")[row], unit: "bytes", why: "the trace has no reserved memory" },
              ]),
          { name: "in use at the end", value: table.of("in_use")[row], unit: "bytes" },
          { name: "allocated, added up", value: table.of("allocated")[row], unit: "bytes" },
          { name: "allocations", value: table.of("allocations")[row], unit: "count" },
        ]}
      />
      <OverTime source={source} where={where} start={start} peak={table.of("peak_time")[row]} name={named(table, row)} />
      <AtPeak source={source} where={where} peak={table.number("peak_memory", row)} />
      <Tabs
        label="Tables of memory"
        name="table"
        now={name}
        of={Object.entries(TABLES).map(([value, one]) => ({ value, text: one.text }))}
      />
      <DataTable key={name} source={source} name={name} where={where} sort={TABLES[name]!.sort ?? ""} height={460} />
    </>
  );
}

function placeOf(table: Whole, row: number): string {
  return `${table.number("process", row) ?? 0}:${table.number("device", row) ?? 0}`;
}

function named(table: Whole, row: number): string {
  const device = table.number("device", row);
  return `process ${table.number("process", row)}, ${device === -1 ? "CPU" : `device ${device}`}`;
}

interface CurveProps {
  source: PageProps["source"];
  where: { process: number; device: number };
  start: unknown;
  peak: unknown;
  name: string;
}

function OverTime({ source, where, start, peak, name }: CurveProps) {
  const answered = useWhole(source, "memory_curve", { where: JSON.stringify(where) }, MOST);
  return <Await of={answered}>{(table) => <Drawn table={table} start={start} peak={peak} name={name} />}</Await>;
}

function Drawn({ table, start, peak, name }: { table: Whole; start: unknown; peak: unknown; name: string }) {
  const first = start ?? table.of("time")[0];
  const x = useMemo(() => offsets(table.of("time"), first).map((one) => one ?? 0), [table, first]);
  const curves = useMemo(() => {
    const made: Curve[] = [{ name: "in use", values: table.numbers("in_use"), fill: true }];
    const reserved = table.numbers("reserved");
    if (reserved.some((one) => one !== null)) made.push({ name: "reserved by the allocator", values: reserved });
    return made;
  }, [table]);
  const marks = useMemo(() => {
    const at = offsets([peak], first)[0];
    return at === null || at === undefined ? [] : [{ x: at, label: "peak" }];
  }, [peak, first]);
  if (!table.many) return <p class="chart-note">{visible(table.page.empty)}</p>;
  const origin = integer(first) ?? 0n;
  const go = (from: number, to: number) => {
    location.hash = timelineOf(String(origin + BigInt(Math.round(from))), String(origin + BigInt(Math.round(to))));
  };
  return (
    <Curves
      title={`Memory over time: ${name}`}
      x={x}
      curves={curves}
      showX={(ns) => show(ns, "ns")}
      show={(value) => show(value, "bytes")}
      stepped
      height={240}
      marks={marks}
      onRange={go}
      xName="at"
      note={`${table.many.toLocaleString("en")} points that keep every peak; times are from the trace's start. Drag over a span to open it on the timeline.`}
    />
  );
}

/** What the peak was made of, by kind; the kinds add up to the peak. */
function AtPeak({ source, where, peak }: { source: PageProps["source"]; where: { process: number; device: number }; peak: number | null }) {
  const answered = useWhole(source, "memory_kinds", { where: JSON.stringify(where), sort: "-at_peak" }, 5_000);
  return (
    <Await of={answered}>
      {(table) => {
        const sums = new Map<string, number>();
        for (let row = 0; row < table.many; row++) {
          const kind = table.text("kind", row) ?? "unknown";
          sums.set(kind, (sums.get(kind) ?? 0) + (table.number("at_peak", row) ?? 0));
        }
        const whole = [...sums.values()].reduce((sum, one) => sum + one, 0);
        const bars: Bar[] = [...sums]
          .sort((a, b) => b[1] - a[1])
          .map(([kind, value], index) => ({
            name: kind,
            value,
            colour: kind === "unknown" ? "--series-6" : KINDS[index % KINDS.length]!,
            note: peak ? show(value / peak, "fraction") : "",
          }));
        if (!bars.length || !whole) return null;
        return (
          <>
            <Bars
              title={`In use at the peak, by kind: ${show(whole, "bytes")}`}
              bars={bars}
              show={(value) => show(value, "bytes")}
              exact={(value) => exact(value, "bytes")}
            />
            {!table.complete && table.many < table.page.matching && (
              <p class="chart-note">Of the {table.page.matching.toLocaleString("en")} rows the largest {table.many.toLocaleString("en")} are added up.</p>
            )}
          </>
        );
      }}
    </Await>
  );
}

export const PAGE: Page = { name: "memory", title: "Memory", key: "m", component: Memory };
