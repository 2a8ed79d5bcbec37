// The page Layers: a flame graph, the tree of modules with their times, and the ops of a selected one.
import { useMemo, useState } from "preact/hooks";
import type { Page, PageProps } from "../page";
import { FlameSection } from "../parts/flame_section";
import { Figures } from "../parts/figures";
import { visible } from "../parts/format";
import { ModuleTree } from "../parts/module_tree";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { useWhole, type Whole } from "../parts/whole";
import { setParams } from "../state";

/** Rows of modules that are fetched: the tree is drawn as it is opened. */
const MOST = 10_000;

function Layers({ source, params }: PageProps) {
  const modules = useWhole(source, "modules", {}, MOST);
  const layer = params.get("layer");
  return (
    <Await of={modules}>
      {(found) => {
        const named = found.of("layer").some((one) => one !== null);
        return (
          <>
            {!named && <p class="chart-note">{visible(found.page.empty)}</p>}
            <FlameSection source={source} params={params} first={named ? "layer" : "op"} />
            <ModuleTree
              table={found}
              search={params.get("modules_q") ?? ""}
              onSearch={(text) => setParams({ modules_q: text || undefined }, false)}
              selected={layer}
              onSelect={(next) => setParams({ layer: next === layer ? undefined : (next ?? undefined) }, false)}
            />
            {layer !== null && <Selected table={found} layer={layer} source={source} />}
          </>
        );
      }}
    </Await>
  );
}

function Selected({ table, layer, source }: { table: Whole; layer: string; source: PageProps["source"] }) {
  const row = useMemo(() => table.of("layer").indexOf(layer), [table, layer]);
  const [inside, setInside] = useState(false);
  const deeper = row < 0 ? 0 : (table.number("inside", row) ?? 0);
  const figure = (column: string) => (row < 0 ? null : (table.of(column)[row] ?? null));
  return (
    <section>
      <h2>{visible(layer)}</h2>
      {row >= 0 && (
        <Figures
          of={[
            { name: "time, all inside", value: figure("device_total"), unit: "ns" },
            { name: "of its own ops", value: figure("device_self"), unit: "ns" },
            { name: "forward", value: figure("forward_part"), unit: "ns" },
            { name: "backward", value: figure("backward_part"), unit: "ns" },
            { name: "optimizer and other", value: figure("rest_part"), unit: "ns" },
            { name: "share", value: figure("share"), unit: "fraction" },
            { name: "FLOPs", value: figure("flops"), unit: "FLOP", why: "no op inside has known FLOPs" },
            { name: "calls", value: figure("module_calls"), unit: "count", why: "the trace names it without ranges of it" },
            { name: "modules inside", value: deeper, unit: "count" },
          ]}
        />
      )}
      <DataTable
        source={source}
        name="detail"
        id="layer_ops"
        where={{ layer }}
        q=""
        sort="-device_time"
        title="Ops that it called itself"
        columns={["op", "direction", "inputs", "calls", "device_time", "share", "flops", "kernels", "source"]}
        empty="it called no op itself: its time is that of the modules inside it"
        height={360}
      />
      {deeper > 0 && (
        <details class="in-words" onToggle={(event) => setInside(event.currentTarget.open)}>
          <summary>ops of layers whose path contains this one</summary>
          {inside && <DataTable source={source} name="detail" id="inside_ops" q={layer} sort="-device_time" title="" columns={["op", "layer", "direction", "inputs", "calls", "device_time", "share", "flops", "kernels"]} height={360} />}
        </details>
      )}
    </section>
  );
}

export const PAGE: Page = { name: "layers", title: "Layers", key: "l", component: Layers };
