// The page Kernels: by name, with occupancy and Tensor Cores; the launches and executions of one.
import type { Page, PageProps } from "../page";
import { useAnswer } from "../parts/answer";
import { Bars } from "../parts/charts/bars";
import { Shares } from "../parts/charts/shares";
import { Chosen } from "../parts/chosen";
import { exact, numeric, show, time } from "../parts/format";
import type { TablePage } from "../parts/rows";
import { DataTable } from "../parts/table";
import { setParams } from "../state";

export const PAGE: Page = { name: "kernels", title: "Kernels", key: "k", component: Kernels };

function Kernels({ source, about, params }: PageProps) {
  const kernel = params.get("kernel");
  const use = useAnswer<TablePage>(source, "table", { name: "device_use", rows: 1_000 });
  const lengths = useAnswer<TablePage>(source, "table", { name: "kernel_lengths", rows: 100 });
  // a merged job has totals of kernels, and no launch of one
  const merged = about.merged !== null && <DataTable source={source} name="kernel" title={`Kernels of ${about.merged}`} />;
  return (
    <>
      <div class="charts-row">
        {use.answer && <TensorCores page={use.answer} />}
        {lengths.answer && <Lengths page={lengths.answer} />}
      </div>
      {merged || <ByName source={source} kernel={kernel} />}
    </>
  );
}

function ByName({ source, kernel }: { source: PageProps["source"]; kernel: string | null }) {
  return (
    <>
      <DataTable
        source={source}
        name="occupancy"
        title="Kernels by name"
        columns={["name", "share", "total", "calls", "mean", "tensor_core", "achieved_occupancy", "theoretical_occupancy", "limited_by", "waves", "tail_share", "op", "configurations", "min", "max", "blocks_per_sm", "occupancy_reason"]}
        selected={kernel ? { name: kernel } : null}
        onSelect={(row) => setParams({ kernel: String(row["name"]) }, false)}
        height={kernel ? 300 : undefined}
      />
      {kernel ? (
        <>
          <Chosen what="kernel" value={kernel} onClear={() => setParams({ kernel: undefined }, false)} />
          <DataTable
            source={source}
            name="kernel_launches"
            title="Launch configurations"
            where={{ name: kernel }}
            q=""
            columns={["grid", "block", "share", "total", "calls", "mean", "registers", "shared_memory", "theoretical_occupancy", "achieved_occupancy", "limited_by", "waves", "tail_share", "cluster", "device_name", "occupancy_reason"]}
            height={240}
          />
          <DataTable source={source} name="kernel_activities" title="Ops that launched it" where={{ name: kernel }} q="" columns={["op", "share", "total", "calls", "mean", "min", "max"]} height={200} />
          <DataTable
            source={source}
            name="each_kernel"
            title="Executions"
            where={{ name: kernel }}
            q=""
            sort="-duration"
            columns={["start", "duration", "step", "process", "device", "stream", "op", "direction", "layer", "grid", "block", "flops", "bytes", "tensor_core", "tc_reason", "reason"]}
            height={280}
          />
        </>
      ) : (
        <>
          <p class="quiet">Select a kernel to see its launches, its ops and its executions.</p>
          <DataTable source={source} name="bandwidth" title="Copies and sets" height={220} />
          <DataTable source={source} name="short_kernels" height={260} />
        </>
      )}
    </>
  );
}

/** Time on Tensor Cores (which other vendors call otherwise), surely not on them, and not known, of all devices. */
function TensorCores({ page }: { page: TablePage }) {
  const sum = (name: string) => (page.values[name] ?? []).reduce<number>((total, value) => total + (numeric(value) ?? 0), 0);
  const [whole, yes, doubt] = [sum("kernel_time"), sum("tensor_core_time"), sum("tensor_core_undetermined_time")];
  if (!(whole > 0)) return null;
  const called = page.columns.find((column) => column.name === "tensor_core_time")?.heading;
  const units = (called ?? "Tensor Core time").replace(/ time$/, "s");
  const parts = [
    { name: `on ${units}`, value: yes, colour: "--k-matrix" },
    { name: "not on them", value: whole - yes - doubt, colour: "--k-copies" },
    { name: "not known", value: doubt, colour: "--k-unknown" },
  ];
  return <Shares title={`Kernel time on ${units}`} parts={parts.filter((part) => part.value > 0)} show={time} exact={(value) => exact(value, "ns")} />;
}

function Lengths({ page }: { page: TablePage }) {
  const at = (name: string, index: number) => page.values[name]?.[index];
  if (!page.total) return null;
  const bars = (page.values["calls"] ?? []).map((calls, index) => ({
    name: at("below", index) === null ? `from ${time(at("at_least", index))}` : `${time(at("at_least", index))} to ${time(at("below", index))}`,
    value: numeric(calls),
    title: `${exact(calls, "count")} executions, ${exact(at("total", index), "ns")} in all`,
    note: show(at("total", index), "ns"),
  }));
  return <Bars title="Executions by length, with their time" bars={bars} show={(value) => show(value, "count")} />;
}
