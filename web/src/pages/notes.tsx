// The page Notes: what is doubted, what was left out and why, and what this was made from.
import type { Page, PageProps } from "../page";
import { useAnswer } from "../parts/answer";
import { exact, show, visible } from "../parts/format";
import type { RoofsAnswer } from "../parts/roofs";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";

export const PAGE: Page = { name: "notes", title: "Notes", key: "n", component: Notes };

function Notes({ source, about }: PageProps) {
  const span = about.span && (BigInt(about.span.end) - BigInt(about.span.start)).toString();
  return (
    <>
      <dl class="facts">
        <dt>{about.files.length === 1 ? "file" : "files"}</dt>
        <dd>{about.files.map((file) => visible(file)).join(", ")}</dd>
        {about.other.length > 0 && (
          <>
            <dt>compared with</dt>
            <dd>{about.other.map((file) => visible(file)).join(", ")}</dd>
          </>
        )}
        <dt>selected</dt>
        <dd>{about.selected === null ? "everything" : visible(about.selected)}</dd>
        <dt>span</dt>
        <dd title={span === null ? undefined : exact(span, "ns")}>{span === null ? "unknown: nothing in the trace has a time" : show(span, "ns")}</dd>
        <dt>devices</dt>
        <dd>{about.devices.length ? about.devices.map((one) => `${one.device}: ${visible(one.name)}`).join(", ") : "none were recorded: times are those of ops on the CPU"}</dd>
        <dt>ranks</dt>
        <dd>{about.ranks.length ? (about.ranks.length > 16 ? `${about.ranks.length}, from ${about.ranks[0]} to ${about.ranks[about.ranks.length - 1]}` : about.ranks.join(", ")) : "not recorded"}</dd>
        <dt>steps</dt>
        <dd>{about.steps ? `${about.steps.count}, from ${about.steps.first} to ${about.steps.last}${about.steps.marked ? "" : ", iterations that were found"}` : "none were marked or found"}</dd>
        <dt>opscope</dt>
        <dd>{visible(about.version)}</dd>
      </dl>
      <DataTable source={source} name="notes" title="What the reader and the recorder noted" columns={["what", "severity", "how_many"]} height={320} />
      <DataTable source={source} name="unattributed" title={about.cpu_only ? "Time without an op, by reason" : "Device time without an op, by reason"} height={240} />
      <DataTable source={source} name="gaps" title="Where time without an op lies" height={240} />
      <DataTable source={source} name="missing" title="Ops whose FLOPs or bytes are not known" height={280} />
      <Limits source={source} cpuOnly={about.cpu_only} />
      <DataTable source={source} name="device_use" title="Devices, and what of them is known" height={220} />
      <DataTable source={source} name="clocks" title="Clocks" height={200} />
      <DataTable source={source} name="own_costs" title="What opscope itself cost" height={200} />
    </>
  );
}

/** What rooflines, utilisation and MFU measure against: the device's peaks as its datasheet has them. */
function Limits({ source, cpuOnly }: Pick<PageProps, "source"> & { cpuOnly: boolean }) {
  const roofs = useAnswer<RoofsAnswer>(source, "roofs");
  return (
    <section>
      <h2>{cpuOnly ? "The CPU's limits" : "The device's limits"}</h2>
      <Await of={roofs}>
        {(limits) =>
          limits.device === null ? (
            <p>Not known: {visible(limits.reason ?? "the trace names no device")}</p>
          ) : (
            <>
              <dl class="facts">
                <dt>taken for</dt>
                <dd>{visible(limits.device)}</dd>
                <dt>memory</dt>
                <dd>{limits.bandwidth === null ? "not known" : <Rate value={limits.bandwidth} unit="bytes/s" />}</dd>
                <dt>largest cache</dt>
                <dd>{limits.cache === null ? "not known" : <Rate value={limits.cache} unit="bytes" />}</dd>
                {!cpuOnly && (
                  <>
                    <dt>tensor units</dt>
                    <dd>{rates(limits.tensor)}</dd>
                  </>
                )}
                <dt>vector units</dt>
                <dd>{rates(limits.vector)}</dd>
              </dl>
              {limits.notes.map((note) => (
                <p key={note} class="chart-note">
                  {visible(note)}
                </p>
              ))}
            </>
          )
        }
      </Await>
    </section>
  );
}

function Rate({ value, unit }: { value: number; unit: string }) {
  return <span title={exact(value, unit)}>{show(value, unit)}</span>;
}

function rates(table: Record<string, number>) {
  const all = Object.entries(table);
  if (!all.length) return "none are known";
  return all.map(([dtype, rate], index) => (
    <span key={dtype}>
      {index > 0 && ", "}
      {dtype} <Rate value={rate} unit="FLOP/s" />
    </span>
  ));
}
