// The page Steps: the time of each by what the process did; a range chosen here holds on every page.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Page, PageProps } from "../page";
import { wordsFor } from "../parts/answer";
import { visible } from "../parts/format";
import { allRows, type Row } from "../parts/rows";
import { Empty, Failed } from "../parts/states";
import { StepBars } from "../parts/step_bars";
import { DataTable } from "../parts/table";
import type { Source } from "../source";
import { route, setParams } from "../state";

export const PAGE: Page = { name: "steps", title: "Steps", key: "s", component: Steps };

/** Steps that the chart draws at most. */
const MOST = 20_000;

function Steps({ source, about, params }: PageProps) {
  const [rows, error] = useSteps(source);
  const processes = useMemo(() => [...new Set((rows ?? []).map((row) => Number(row["process"])))].sort((one, other) => one - other), [rows]);
  const asked = Number(params.get("process") ?? processes[0]);
  const process = processes.includes(asked) ? asked : processes[0];
  const mine = useMemo(() => (rows ?? []).filter((row) => row["process"] === process && row["step"] !== null), [rows, process]);
  const steps = params.get("steps");
  const one = params.get("step");
  // without steps their tables have a row of all that was recorded
  const known = mine.length > 0 || rows === null;
  if (error) return <Failed>{visible(error)}</Failed>;
  return (
    <>
      {rows && processes.length > 1 && (
        <label class="field">
          <span>process</span>
          <select value={String(process)} onChange={(event) => setParams({ process: event.currentTarget.value })}>
            {processes.map((number) => (
              <option key={number} value={number} selected={number === process}>
                {number}
                {rankOf(rows, number)}
              </option>
            ))}
          </select>
        </label>
      )}
      {rows && mine.length === 0 && <Empty>No steps were marked: opscope.step() or a callback marks them. The iterations that were found are below.</Empty>}
      {mine.length > 0 && (
        <StepBars rows={mine} range={steps ? bounds(steps) : null} step={one === null ? null : Number(one)} live={source.live} cut={about.steps !== null && (rows?.length ?? 0) >= MOST ? MOST : null} />
      )}
      <DataTable source={source} name="step_summary" title={known ? "Parts and phases, over the steps" : "Parts and phases of the whole run"} height={360} />
      <DataTable source={source} name="slow_steps" height={300} />
      <DataTable
        source={source}
        name="steps"
        title={known ? "Each step" : "The whole run of each process"}
        sort="step"
        selected={one === null ? null : { step: one, process: String(process) }}
        onSelect={(row) => setParams({ step: row["step"] === null ? undefined : String(row["step"]), process: String(row["process"]) }, false)}
        height={360}
      />
      {one !== null && <DataTable source={source} name="step_phases" title={`Phases of step ${one}`} where={{ step: Number(one) }} q="" height={240} />}
      <DataTable source={source} name="iterations" title="Iterations, as found" height={260} />
      <DataTable source={source} name="input" title="Input of each step" needs={["input_wait", "loader"]} sort="step" height={260} />
      <DataTable source={source} name="data_preparation" title="Data preparation: loaders and queues" height={220} />
      <DataTable source={source} name="input_pipeline" title="Data preparation: stages of the input pipeline" height={260} />
    </>
  );
}

function rankOf(rows: Row[], process: number): string {
  const rank = rows.find((row) => row["process"] === process)?.["rank"];
  return rank === null || rank === undefined ? "" : `, rank ${String(rank)}`;
}

/** "3-8" as numbers. */
function bounds(text: string): [number, number] | null {
  const parts = /^(\d+)(?:-(\d+))?$/.exec(text);
  return parts ? [Number(parts[1]), Number(parts[2] ?? parts[1])] : null;
}

/** All steps, whatever range of them is selected: the chart is where a range is chosen. */
function useSteps(source: Source): [Row[] | null, string] {
  const [rows, setRows] = useState<Row[] | null>(null);
  const [error, setError] = useState("");
  const { params } = route();
  const [device, rank] = [params.get("device") ?? undefined, params.get("rank") ?? undefined];
  useEffect(() => {
    const abort = new AbortController();
    allRows(source, { name: "steps", sort: "step", device, rank }, MOST, () => {}, abort.signal).then(
      (found) => !abort.signal.aborted && (setRows(found.rows), setError("")),
      (failure) => !abort.signal.aborted && setError(wordsFor(failure)),
    );
    return () => abort.abort();
  }, [source, device, rank]);
  return [rows, error];
}
