// The page Roofline: how near the work comes to the device's limits, and the utilization of each step.
import { useMemo } from "preact/hooks";
import type { Page, PageProps } from "../page";
import { useAnswer } from "../parts/answer";
import { Curves } from "../parts/charts/curves";
import { type Dot, Scatter } from "../parts/charts/scatter";
import { Figures } from "../parts/figures";
import { exact, show, visible } from "../parts/format";
import { roofLines, type RoofsAnswer } from "../parts/roofs";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { Tabs } from "../parts/tabs";
import { useWhole, type Whole } from "../parts/whole";
import { hrefOf, setParams } from "../state";

const BY: Record<string, { text: string; table: string; key: string; page: string | null }> = {
  op: { text: "Ops", table: "roofline", key: "op", page: "operators" },
  kernel: { text: "Kernels", table: "roofline_kernel", key: "name", page: "kernels" },
  layer: { text: "Layers", table: "roofline_layer", key: "layer", page: "layers" },
  step: { text: "Steps", table: "roofline_step", key: "step", page: null },
};
const BOUNDS: Record<string, string> = {
  tensor: "--series-1",
  vector: "--series-3",
  memory: "--series-2",
  latency: "--series-4",
  "no roof": "--series-6",
};
/** Points of the chart; of more rows those with the most time. */
const MOST = 2_000;

function Roofline({ source, about, params }: PageProps) {
  const asked = params.get("by") ?? "op";
  // without a GPU there are no kernels
  const kinds = Object.entries(BY).filter(([value]) => value !== "kernel" || !about.cpu_only);
  const by = kinds.some(([value]) => value === asked) ? asked : "op";
  const table = useWhole(source, BY[by]!.table, { sort: "-duration" }, MOST);
  const roofs = useAnswer<RoofsAnswer>(source, "roofs");
  return (
    <>
      <Tabs
        label="What is a point"
        name="by"
        now={by}
        of={kinds.map(([value, one]) => ({ value, text: one.text }))}
        clears={["at"]}
      />
      <Await of={roofs}>
        {(known) => (
          <Await of={table}>{(found) => <Chart known={known} table={found} by={by} params={params} source={source} />}</Await>
        )}
      </Await>
      <Utilization source={source} />
      <Measured source={source} />
    </>
  );
}

interface ChartProps {
  known: RoofsAnswer;
  table: Whole;
  by: string;
  params: URLSearchParams;
  source: PageProps["source"];
}

function Chart({ known, table, by, params, source }: ChartProps) {
  const { key, table: name, page } = BY[by]!;
  const chosen = params.get("at");
  const { dots: drawn, names, unknown, zero, whole } = useMemo(() => points(table, key), [table, key]);
  const roofs = useMemo(() => {
    const across = drawn.map((dot) => dot.x);
    return roofLines(known, Math.min(...across, 0.1), Math.max(...across, 10));
  }, [known, drawn]);
  const at = chosen === null ? null : drawn.findIndex((dot) => dot.label === chosen);
  const select = (label: string | null) => setParams({ at: label === chosen ? undefined : (label ?? undefined) }, true);
  if (!table.page.total) return <p class="no-rows">{visible(table.page.empty)}</p>;
  return (
    <>
      {known.device === null && (
        <p class="chart-note">
          No roofs are drawn: {visible(known.reason ?? "the device is not known")}.
        </p>
      )}
      {drawn.length > 0 ? (
        <Scatter
          title={known.device === null ? "Attained rates" : `Attained rates against ${visible(known.device)}`}
          dots={drawn}
          roofs={known.device === null ? [] : roofs}
          xName="intensity"
          yName="attained rate"
          showX={(x) => show(x, "FLOP/byte")}
          showY={(y) => show(y, "FLOP/s")}
          chosen={at}
          onPick={(index) => select(drawn[index]!.label)}
          legend={Object.entries(BOUNDS)
            .filter(([bound]) => drawn.some((dot) => dot.colour === BOUNDS[bound]))
            .map(([bound, colour]) => ({ name: bound === "no roof" ? "bound not known" : `${bound}-bound`, colour }))}
          note={`The larger a point, the more of the time it has.${roofs.length ? ` Solid roofs: ${Object.keys(known.tensor).length ? "tensor units and memory" : "memory"}; dashed: vector units.` : ""}`}
        />
      ) : (
        <p class="chart-note">
          Of no row are FLOPs and bytes both known: there are no points to draw.
        </p>
      )}
      {[
        { rows: unknown, why: "have FLOPs or bytes that are not known" },
        { rows: zero, why: "compute or move nothing (0 FLOPs or 0 bytes), which a logarithmic axis does not have" },
      ].map(
        ({ rows, why }) =>
          rows.many > 0 && (
            <p key={why} class="chart-note">
              No points: {rows.many.toLocaleString("en")} of {table.page.total.toLocaleString("en")} rows, with{" "}
              <b title={exact(rows.time, "ns")}>{show(rows.time, "ns")}</b> (
              {show(whole ? rows.time / whole : 0, "fraction")} of the time), {why}.
            </p>
          ),
      )}
      {!table.complete && (
        <p class="chart-note">
          Drawn are the {table.many.toLocaleString("en")} rows with the most time, of {table.page.total.toLocaleString("en")}.
        </p>
      )}
      {known.device !== null && (
        <details class="in-words">
          <summary>about the roofs</summary>
          {known.notes.map((note) => (
            <p key={note} class="chart-note">
              {visible(note)}
            </p>
          ))}
          {known.cache !== null && (
            <p class="chart-note">
              One memory level has a roof, the device's memory. The bandwidth of its {show(known.cache, "bytes")} cache is
              not known, so that work in it may be above the roof.
            </p>
          )}
        </details>
      )}
      {chosen !== null && at !== null && at >= 0 && (
        <Figures of={figures(table, names.indexOf(chosen))} />
      )}
      {chosen !== null && page && at !== null && at >= 0 && (
        <p>
          <a href={hrefOf(page, { [by]: chosen })}>open this {by}</a>
        </p>
      )}
      <DataTable
        source={source}
        name={name}
        sort="-duration"
        selected={chosen === null ? null : { [key]: by === "step" ? Number(chosen) : chosen }}
        onSelect={(row) => select(row[key] === null ? null : String(row[key]))}
        height={440}
      />
      <DataTable source={source} name="missing" height={300} />
    </>
  );
}

function points(table: Whole, key: string) {
  const durations = table.numbers("duration");
  const whole = Number(table.page.sums_all["duration"] ?? durations.reduce<number>((sum, one) => sum + (one ?? 0), 0));
  const dots: Dot[] = [];
  const names: (string | null)[] = [];
  const unknown = { many: 0, time: 0 };
  const zero = { many: 0, time: 0 };
  for (let row = 0; row < table.many; row++) {
    const name = table.text(key, row);
    names.push(name);
    const [x, y, time] = [table.number("intensity", row), table.number("attained_flops", row), durations[row] ?? 0];
    if (x === null || y === null || x <= 0 || y <= 0) {
      const kind = x === null || y === null ? unknown : zero;
      kind.many++;
      kind.time += time;
      continue;
    }
    const bound = table.text("bound", row);
    const efficiency = table.of("efficiency")[row];
    dots.push({
      x,
      y,
      label: name ?? "(no name)",
      weight: whole ? time / whole : 0,
      colour: BOUNDS[bound ?? "no roof"] ?? BOUNDS["no roof"]!,
      text: [
        `${show(time, "ns")}, ${show(whole ? time / whole : 0, "fraction")} of the time (${exact(time, "ns")})`,
        `${show(y, "FLOP/s")} at ${show(x, "FLOP/byte")}`,
        bound === null ? "its roof is not known" : `${bound}-bound, ${show(efficiency, "fraction")} of its roof`,
        `${show(table.of("attained_bandwidth")[row], "bytes/s")}`,
      ],
    });
  }
  return { dots, names, unknown, zero, whole };
}

function figures(table: Whole, row: number) {
  const unit = new Map(table.page.columns.map((column) => [column.name, column.unit]));
  return ["duration", "ideal_time", "efficiency", "attained_flops", "attained_bandwidth", "intensity", "rated", "calls"].map((name) => ({
    name: name.replace(/_/g, " "),
    value: row < 0 ? null : (table.of(name)[row] ?? null),
    unit: unit.get(name) ?? "",
  }));
}

/** MFU and HFU by step, as the report `utilization` has them. */
function Utilization({ source }: { source: PageProps["source"] }) {
  const answered = useWhole(source, "utilization", {}, 5_000);
  return (
    <section>
      <h2>FLOPs utilization by step</h2>
      <Await of={answered}>{(table) => (table.page.total ? <Steps table={table} source={source} /> : <p class="no-rows">{visible(table.page.empty)}</p>)}</Await>
    </section>
  );
}

function Steps({ table, source }: { table: Whole; source: PageProps["source"] }) {
  const { steps, curves, several } = useMemo(() => utilization(table), [table]);
  const known = curves.some((curve) => curve.values.some((value) => value !== null));
  return (
    <>
      {known ? (
        <Curves
          title={several ? "MFU by process" : "MFU and HFU"}
          x={steps}
          curves={curves}
          showX={(step) => (Number.isInteger(step) ? `step ${step}` : "")}
          show={(value) => show(value, "fraction")}
          points={steps.length < 100}
          xName=""
          height={150}
          onPick={(index) => setParams({ steps: String(steps[index]) }, false)}
          note="MFU counts forward and backward once; HFU counts recomputation too. Both are lower bounds where not all FLOPs are known (column known). A click selects the step everywhere."
        />
      ) : (
        <p class="chart-note">
          MFU is not known: {(table.number("peak", 0) === null) ? "the peak for this dtype is not known, as said above" : "no step's FLOPs are known"}.
        </p>
      )}
      <DataTable source={source} name="utilization" title="" height={280} />
    </>
  );
}

function utilization(table: Whole) {
  const all = table.numbers("step");
  const steps = [...new Set(all.filter((one): one is number => one !== null))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, index) => [step, index]));
  const processes = [...new Set(table.numbers("process"))];
  const several = processes.length > 1;
  const made = new Map<string, (number | null)[]>();
  const curve = (name: string) => {
    if (!made.has(name)) made.set(name, new Array<number | null>(steps.length).fill(null));
    return made.get(name)!;
  };
  for (let row = 0; row < table.many; row++) {
    const at = place.get(all[row] ?? NaN);
    if (at === undefined) continue;
    const process = table.text("process", row);
    if (several && processes.indexOf(table.number("process", row)) >= 6) continue;
    curve(several ? `process ${process}` : "MFU")[at] = table.number("mfu", row);
    if (!several) curve("HFU")[at] = table.number("hfu", row);
  }
  return { steps, several, curves: [...made].map(([name, values]) => ({ name, values })) };
}

/** What hardware counters measured beside the model; only where there are some. */
function Measured({ source }: { source: PageProps["source"] }) {
  const answered = useWhole(source, "counter_roofline", {}, 1);
  return (
    <Await of={answered}>
      {(table) => (table.page.total ? <DataTable source={source} name="counter_roofline" height={320} /> : null)}
    </Await>
  );
}

export const PAGE: Page = { name: "roofline", title: "Roofline", key: "r", component: Roofline };
