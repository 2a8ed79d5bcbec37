// What the page Memory says first: what grows from step to step, and what holds the peak.
import type { PageProps } from "../page";
import { exact, show, visible } from "../parts/format";
import { Name } from "../parts/name";
import { useWhole, type Whole } from "../parts/whole";
import { hrefOf } from "../state";

interface Props {
  source: PageProps["source"];
  where: { process: number; device: number };
  /** Bytes. */
  peak: number | null;
  /** When it was, in words. */
  at: string;
}

export function MemoryWords({ source, where, peak, at }: Props) {
  const growth = useWhole(source, "advice", { where: JSON.stringify({ detector: "memory_growth" }) }, 10);
  const holders = useWhole(source, "memory_by_op", { where: JSON.stringify(where), sort: "-at_peak" }, 1);
  return (
    <section class="findings memory-words" aria-label="What memory does">
      {growth.answer && <Growth table={growth.answer} />}
      {holders.answer && peak !== null && <Peak table={holders.answer} peak={peak} at={at} />}
    </section>
  );
}

/** The finding names the line and the bytes of a step; without one, the threshold that was not reached, or why it is not known. */
function Growth({ table }: { table: Whole }) {
  const found = table.text("outcome", 0) === "found";
  if (found) {
    return (
      <>
        {Array.from({ length: table.many }, (_, row) => (
          <div key={row}>
            <p>
              <b>It grows:</b> {visible(withoutThreshold(table.text("finding", row) ?? ""))}
              {table.text("evidence", row) && <span class="quiet"> ({visible(table.text("evidence", row)!)})</span>}
            </p>
            <p class="try">
              <span class="quiet">To try:</span> {visible(table.text("recommendation", row) ?? "")}
            </p>
          </div>
        ))}
      </>
    );
  }
  const reason = table.text("reason", 0);
  const threshold = table.text("threshold", 0);
  if (!table.many) return null;
  return (
    <p>
      {reason ? `Whether it grows from step to step is not known: ${visible(reason)}.` : `It does not grow from step to step${threshold ? `. What would count: ${visible(threshold)}` : ""}.`}
    </p>
  );
}

function withoutThreshold(finding: string): string {
  return finding.replace(/ \(threshold: .*\)$/, "");
}

function Peak({ table, peak, at }: { table: Whole; peak: number; at: string }) {
  const held = table.number("at_peak", 0);
  if (!table.many || held === null) return null;
  const [op, line, layer] = ["op", "source", "layer"].map((name) => table.text(name, 0));
  return (
    <p>
      <b>The peak</b> of <span title={exact(peak, "bytes")}>{show(peak, "bytes")}</span> {at} is held most by{" "}
      {op ? <Name of="op" value={op} /> : <>what no op allocated{table.text("reason", 0) ? ` (${visible(table.text("reason", 0)!)})` : ""}</>}
      : <span title={exact(held, "bytes")}>{show(held, "bytes")}</span> ({show(peak ? held / peak : 0, "fraction")})
      {line && (
        <>
          {" "}
          at <Name of="source" value={line} />
        </>
      )}
      {layer && (
        <>
          {" "}
          in <Name of="layer" value={layer} />
        </>
      )}
      <br />
      <a href={hrefOf("memory", { table: "memory_by_op" })}>All that was in use then</a>
    </p>
  );
}
