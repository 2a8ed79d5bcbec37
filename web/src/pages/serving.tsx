// The page Serving: an engine's time by kind of step and by what ran, the curve of batches, requests, costs.
import type { Page, PageProps } from "../page";
import { type Bar, Bars } from "../parts/charts/bars";
import { type Dot, Scatter } from "../parts/charts/scatter";
import { exact, numeric, show, time, visible } from "../parts/format";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { useWhole, type Whole } from "../parts/whole";

export const PAGE: Page = { name: "serving", title: "Serving", key: "v", component: Serving };

/** The parts of a step's time, with their colours. */
const PARTS: Record<string, string> = {
  attention: "--k-attention",
  experts: "--k-normalisation",
  products: "--k-matrix",
  sampling: "--k-reductions",
  communication: "--k-communication",
  copies: "--k-copies",
  other: "--k-other",
  host: "--k-elementwise",
  between: "--k-unknown",
};
const WAITS: Record<string, string> = { queue: "--k-unknown", prefill: "--k-convolution", decode: "--k-matrix" };
const KINDS: Record<string, string> = { decode: "--series-1", verify: "--series-2" };
/** Requests that are drawn. */
const DRAWN = 40;
const nanoseconds = (value: number) => exact(value, "ns");

function Serving({ source }: PageProps) {
  const phases = useWhole(source, "serving_phases");
  const batches = useWhole(source, "serving_batches");
  const requests = useWhole(source, "serving_requests", { sort: "-ttft" }, DRAWN);
  return (
    <>
      <Await of={phases}>{(table) => (table.page.total ? <Phases table={table} /> : <p class="no-rows">{visible(table.page.empty)}</p>)}</Await>
      {batches.answer && <Batches table={batches.answer} />}
      <DataTable source={source} name="serving_tokens" height={160} />
      <DataTable source={source} name="serving_phases" height={240} />
      <DataTable source={source} name="serving_batches" height={260} />
      <DataTable source={source} name="serving_stalls" height={200} />
      <DataTable source={source} name="serving_host" height={240} />
      <DataTable source={source} name="serving_graphs" height={240} />
      <DataTable source={source} name="serving_costs" needs={["energy", "cost"]} height={200} />
      {requests.answer && requests.answer.page.total > 0 && (
        <>
          <Requests table={requests.answer} />
          <DataTable source={source} name="serving_goodput" height={140} />
          <DataTable source={source} name="serving_requests" height={320} />
        </>
      )}
      {requests.answer?.page.total === 0 && <p class="chart-note">{visible(requests.answer.page.empty)}</p>}
      <DataTable source={source} name="engine_steps" sort="step" height={360} />
    </>
  );
}

function counted(steps: number | null): string {
  return `${show(steps, "count")} ${steps === 1 ? "step" : "steps"}`;
}

/** A bar for each kind of step and process: what its time was. */
function Phases({ table }: { table: Whole }) {
  const several = new Set(table.of("process")).size > 1;
  const bars: Bar[] = Array.from({ length: table.many }, (_, row) => {
    const kind = visible(table.text("kind", row) ?? "unknown kind");
    const parts = Object.entries(PARTS).map(([name, colour]) => ({ name, colour, value: table.number(`${name}_part`, row) ?? 0 }));
    const whole = table.number("time", row);
    const known = parts.some((part) => part.value > 0);
    return {
      name: several ? `${kind}, process ${table.text("process", row)}` : kind,
      value: whole,
      ...(known ? { parts: parts.filter((part) => part.value > 0) } : {}),
      note: `${show(table.of("share")[row], "fraction")}, ${counted(table.number("steps", row))} of ${show(table.of("step_time")[row], "ns")}`,
    };
  });
  const used = Object.entries(PARTS).filter(([name]) => table.numbers(`${name}_part`).some((value) => (value ?? 0) > 0));
  return <Bars title="Time by kind of step" bars={bars} show={time} exact={nanoseconds} legend={used.map(([name, colour]) => ({ name, colour }))} />;
}

/** Decode steps over the size of their batch. */
function Batches({ table }: { table: Whole }) {
  const steps = table.numbers("steps");
  const most = Math.max(...steps.map((count) => count ?? 0), 1);
  const dots: Dot[] = [];
  for (let row = 0; row < table.many; row++) {
    const [x, y, kind] = [table.number("decode_requests", row), table.number("step_time", row), table.text("kind", row) ?? "decode"];
    if (x === null || y === null || x <= 0 || y <= 0) continue;
    const text = [`${show(y, "ns")} a step (${exact(y, "ns")})`, `${show(table.of("tokens_per_second")[row], "1/s")} tokens a second`, counted(steps[row] ?? null)];
    dots.push({ x, y, label: `${x} requests, ${visible(kind)}`, text, weight: (steps[row] ?? 0) / most / 10, colour: KINDS[kind] ?? "--series-3" });
  }
  if (dots.length < 2) return null;
  return (
    <Scatter
      title="Decode steps by batch"
      dots={dots}
      xName="requests in the batch"
      yName="median time of a step"
      showX={(value) => show(value, "count")}
      showY={time}
      height={240}
      legend={Object.entries(KINDS).filter(([, colour]) => dots.some((dot) => dot.colour === colour)).map(([name, colour]) => ({ name, colour }))}
      note="A level line: a larger batch costs nothing. The larger a point, the more steps."
    />
  );
}

/** The requests that waited longest for their first token, by what they waited for. */
function Requests({ table }: { table: Whole }) {
  const bars: Bar[] = [];
  for (let row = 0; row < table.many; row++) {
    const id = table.text("id", row);
    const parts = Object.entries(WAITS).map(([name, colour]) => ({ name, colour, value: numeric(table.of(name)[row]) ?? 0 }));
    if (id === null || table.number("queue", row) === null) continue;
    bars.push({ name: visible(id.slice(0, 60)), value: parts.reduce((sum, part) => sum + part.value, 0), parts, note: `first token after ${show(table.of("ttft")[row], "ns")}` });
  }
  if (!bars.length) return null;
  const legend = Object.entries(WAITS).map(([name, colour]) => ({ name, colour }));
  return <Bars title="Requests with the latest first tokens" bars={bars} show={time} exact={nanoseconds} legend={legend} />;
}
