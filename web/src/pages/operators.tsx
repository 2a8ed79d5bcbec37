// The page Operators: ops, the inputs of one, its calls, and the kernels that they launched.
import type { Page, PageProps } from "../page";
import { Chosen } from "../parts/chosen";
import { DataTable } from "../parts/table";
import type { Where } from "../parts/table_tools";
import { setParams } from "../state";

export const PAGE: Page = { name: "operators", title: "Operators", key: "p", component: Operators };

const HERE = ["op", "inputs", "call"] as const;

function Operators({ source, about, params }: PageProps) {
  const [op, inputs, call] = HERE.map((name) => params.get(name));
  const ofInputs: Where = inputs ? { inputs: given(inputs) } : {};
  const choose = (change: Partial<Record<(typeof HERE)[number], string | undefined>>) => setParams(change, false);
  // a merged job has totals of ops, and no call of one
  if (about.merged !== null) return <DataTable source={source} name="detail" title={`Operators of ${about.merged}`} />;
  return (
    <>
      <DataTable
        source={source}
        name="operators"
        selected={op ? { op: given(op) } : null}
        onSelect={(row) => choose({ op: row["op"] === null ? NONE : String(row["op"]), inputs: undefined, call: undefined })}
        height={op ? 300 : undefined}
      />
      {!op ? (
        <p class="quiet">{about.cpu_only ? "Select an op to see its inputs and its calls." : "Select an op to see its inputs, its calls and its kernels."}</p>
      ) : (
        <>
          <Chosen what="op" value={op} onClear={() => choose({ op: undefined, inputs: undefined, call: undefined })} />
          <DataTable
            source={source}
            name="operators_by_inputs"
            title="By inputs"
            where={{ op: given(op) }}
            q=""
            columns={["inputs", "share", "device_self", "device_total", "device_mean", "host_self", "host_total", "calls", "kernels", "tc_eligible", "tensor_core_total", "op_type", "reason"]}
            selected={inputs ? { inputs: given(inputs) } : null}
            onSelect={(row) => choose({ inputs: row["inputs"] === null ? NONE : String(row["inputs"]), call: undefined })}
            height={240}
          />
          <DataTable
            source={source}
            name="each_op"
            title={inputs ? "Calls with these inputs" : "Calls"}
            where={{ op: given(op), ...ofInputs }}
            q=""
            sort={about.cpu_only ? "-self_time" : "-device_time"}
            columns={["start", "step", "direction", "layer", "inputs", "device_time", "self_time", "cpu_time", "flops", "bytes", "kernels", "source", "reason"]}
            selected={call ? { op_id: call } : null}
            onSelect={(row) => choose({ call: String(row["op_id"]) })}
            height={280}
          />
          {!about.cpu_only && (
            <>
              {call && (
                <DataTable
                  source={source}
                  name="each_kernel"
                  id="of_call"
                  title="Kernels of this call"
                  where={{ op_id: Number(call) }}
                  q=""
                  columns={["name", "duration", "start", "stream", "grid", "block", "tensor_core", "flops", "bytes", "reason"]}
                  empty="This call launched no kernel itself: its copies are on the page Kernels, or ops inside it launched them."
                  height={220}
                />
              )}
              <DataTable
                source={source}
                name="kernel_activities"
                title="Kernels of this op"
                where={{ op: given(op) }}
                q=""
                columns={["name", "share", "total", "calls", "mean", "min", "max"]}
                height={260}
              />
            </>
          )}
        </>
      )}
    </>
  );
}

/** Stands in the address for a row without an op, or inputs that are not known. */
const NONE = "(none)";

function given(text: string): string | null {
  return text === NONE ? null : text;
}
