// What is selected on the timeline, in words and figures: one slice, or the sums of a span.
import { useContext } from "preact/hooks";
import { AboutContext } from "../parts/about";
import { exact, show, time, visible, words } from "../parts/format";
import { Middle, Name } from "../parts/name";
import { useKernelNames } from "../parts/kernel_names";
import type { Detail, Inside, LaneSaid, SliceAt, Sums, Waited } from "./data";
import { stamp } from "./ruler";

/** The units of what is told of a slice; the rest is text. */
const UNITS: Record<string, string> = {
  flops: "FLOP",
  bytes: "bytes",
  shared_memory: "bytes",
  self_time: "ns",
  device_time: "ns",
  launched_before: "ns",
  kernels: "count",
  registers: "count",
  step: "number",
  correlation: "number",
  graph: "number",
};
const CALLED: Record<string, string> = { launched_before: "launch to start" };
/** What is told of an op's work on a GPU. */
const OF_GPUS = new Set(["kernels", "device_time"]);
const LINKED = new Set(["op", "layer", "source", "step"]);

interface DetailsProps {
  detail: Detail | null;
  base: bigint;
  onGo: (at: SliceAt) => void;
  /** To the next slice of the same name, or with `back` the one before. */
  onSame: (back: boolean) => void;
  onClose: () => void;
}

export function SliceDetails(props: DetailsProps) {
  const { whole } = useKernelNames();
  const about = useContext(AboutContext);
  const cpuOnly = about?.cpu_only ?? false;
  const { detail } = props;
  if (!detail) {
    return (
      <section class="tl-details" aria-label="The selected slice">
        <p class="quiet">Reading …</p>
      </section>
    );
  }
  const start = Number(BigInt(detail.start) - props.base);
  return (
    <section class="tl-details" aria-label="The selected slice">
      <div class="tl-details-top">
        <button type="button" onClick={() => props.onSame(true)} title="B: the one before with this name" aria-label="Previous of the same name">‹ same</button>
        <button type="button" onClick={() => props.onSame(false)} title="b: the next one with this name" aria-label="Next of the same name">same ›</button>
        <button type="button" onClick={props.onClose} title="Esc">Close</button>
      </div>
      <h2>{visible(whole(detail.name).slice(0, 2_000))}</h2>
      <dl>
        <dt>time</dt>
        <dd title={exact(detail.time, "ns")}>{time(detail.time)}</dd>
        {detail.inside?.self_time != null && !("self_time" in detail.told) && (
          <>
            <dt>self time</dt>
            <dd title={exact(detail.inside.self_time, "ns")}>{time(detail.inside.self_time)}</dd>
          </>
        )}
        {detail.waited && (
          <>
            <dt>waited</dt>
            <dd>{waitedInWords(detail.waited)}</dd>
          </>
        )}
        <dt>start</dt>
        <dd title={`${detail.start} ns on the trace's clock`}>{stamp(start, Math.max(1, 10 ** Math.floor(Math.log10(Math.max(1, detail.time)) - 1)))}</dd>
        <dt>on</dt>
        <dd>{visible(detail.where)}</dd>
        <dt>kind</dt>
        <dd>{detail.kind}</dd>
        {Object.entries(detail.told).filter(([name]) => !cpuOnly || !OF_GPUS.has(name)).map(([name, value]) => (
          <>
            <dt>{CALLED[name] ?? about?.called[name] ?? words(name)}</dt>
            <dd title={UNITS[name] ? exact(value, UNITS[name]!) : undefined}>
              {LINKED.has(name) ? <Name of={name} value={String(value)} /> : show(value, UNITS[name] ?? (typeof value === "boolean" ? "yes/no" : "text"))}
            </dd>
          </>
        ))}
        {detail.flows.length > 0 && (
          <>
            <dt>tied to</dt>
            <dd>
              {detail.flows.slice(0, 12).map((flow, place) => (
                <div key={place}>
                  <button type="button" onClick={() => props.onGo({ lane: flow.lane, level: flow.level, index: flow.index })} title="go there">
                    {flow.what}
                  </button>{" "}
                  <Middle text={flow.name} />
                </div>
              ))}
              {detail.flows.length + detail.more > 12 && (
                <p class="quiet">and {show(detail.flows.length + detail.more - 12, "count")} more{detail.more > 0 ? `; arrows are drawn to the first ${show(detail.flows.length, "count")}` : ""}</p>
              )}
            </dd>
          </>
        )}
      </dl>
      {detail.inside && <InsideTable inside={detail.inside} />}
      {detail.note && <p class="quiet">{detail.note}</p>}
    </section>
  );
}

/** Why a kernel began when it did: what ran before it, its launch, and whether the stream stood idle. */
function waitedInWords({ behind, behind_time, launch_time, idle_before }: Waited): string {
  const after = behind === null ? "" : `${time(behind_time)} behind ${visible(behind.slice(0, 120))}, then `;
  const idle = idle_before ? `; the stream ran nothing for ${time(idle_before)} before it` : "";
  const late = behind === null && idle_before !== null && idle_before > launch_time ? `, ${time(idle_before - launch_time)} of them until it was launched` : "";
  return `${after}${time(launch_time)} from ${behind === null ? "its launch" : "then on"} to its start${idle}${late}`;
}

function InsideTable({ inside }: { inside: Inside }) {
  const rows = inside.names.map((one): (string | number)[] => [one.name, one.slices, one.time]);
  return (
    <>
      <h3>
        {show(inside.slices, "count")} right inside{inside.time !== null && <>: <span title={exact(inside.time, "ns")}>{time(inside.time)}</span></>}
      </h3>
      {rows.length > 0 && <Table head={["name", "slices", "time"]} rows={rows} />}
    </>
  );
}

export function SumDetails({ mark, sums, lanes, onClose }: { mark: [number, number]; sums: Sums | null; lanes: LaneSaid[]; onClose: () => void }) {
  const span = mark[1] - mark[0];
  const titles = new Map(lanes.map((one) => [one.id, one]));
  return (
    <section class="tl-details" aria-label="Sums of the span">
      <h2>
        {stamp(mark[0], step(span), mark[1])} to {stamp(mark[1], step(span))}: <span title={exact(span, "ns")}>{time(span)}</span>
      </h2>
      {!sums ? (
        <p class="quiet">Adding up …</p>
      ) : (
        <div class="tl-sums">
          <Table
            head={["lane", "slices", "time", "busy"]}
            rows={sums.lanes
              .filter((one) => one.slices > 0)
              .map((one) => {
                const lane = titles.get(one.lane);
                return [`${lane?.kind === "stream" ? `device ${lane.device}, ` : ""}${lane?.title ?? one.lane}`, one.slices, one.time, one.busy];
              })}
          />
          <Table head={["kind", "slices", "time"]} rows={sums.kinds.map((one) => [one.kind, one.slices, one.time])} />
          <Table
            head={["name", "slices", "time"]}
            rows={[
              ...sums.names.map((one): (string | number)[] => [one.name, one.slices, one.time]),
              ...(sums.more.names ? [[`and ${show(sums.more.names, "count")} other names`, sums.more.slices, sums.more.time]] : []),
            ]}
          />
        </div>
      )}
      <p class="quiet">Only the part of each slice inside the span counts. A slice inside another counts in both; busy counts each moment once.</p>
      <button type="button" onClick={onClose}>Close</button>
    </section>
  );
}

function step(span: number): number {
  return Math.max(1, 10 ** Math.floor(Math.log10(Math.max(1, span)) - 2));
}

function Table({ head, rows }: { head: string[]; rows: (string | number)[][] }) {
  return (
    <div class="long" tabIndex={0} role="region" aria-label={`By ${head[0]}`}>
      <table>
        <thead>
          <tr>
            {head.map((one) => (
              <th scope="col" key={one}>{one}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, place) => (
            <tr key={place}>
              {row.map((value, column) =>
                column === 0 ? (
                  <td key={column}><Middle text={String(value)} /></td>
                ) : (
                  <td key={column} title={exact(value, column === 1 ? "count" : "ns")}>{show(value, column === 1 ? "count" : "ns")}</td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
