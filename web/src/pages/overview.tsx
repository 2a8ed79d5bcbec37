// The page Overview: what takes the time, how well the device is used, and what to do about it.
import type { About, Page, PageProps } from "../page";
import type { Advice, Card, Diagnosis, Overview, OverviewAdvice, StepPart, TopOp, Unattributed } from "../overview";
import { useAnswer } from "../parts/answer";
import { Bars } from "../parts/charts/bars";
import { Shares } from "../parts/charts/shares";
import { colourOf, variableOf } from "../parts/colours";
import { exact, numeric, share, show, time, visible } from "../parts/format";
import { Name, Unknown } from "../parts/name";
import type { TablePage } from "../parts/rows";
import { Share } from "../parts/share";
import { Await, Empty } from "../parts/states";
import { hrefOf } from "../state";
import { type StepPicture, StepPictureView } from "./step_picture";
import "./overview.css";

export const PAGE: Page = { name: "overview", title: "Overview", key: "o", component: Page_ };

function Page_({ source, about }: PageProps) {
  const figures = useAnswer<Overview>(source, "overview");
  const advice = useAnswer<OverviewAdvice>(source, "overview", { part: "advice" });
  const kinds = useAnswer<TablePage>(source, "table", { name: "by_kind", rows: 100 });
  const step = useAnswer<StepPicture>(source, "step_picture");
  const wall = useAnswer<TablePage>(source, "table", { name: "wall_time", rows: 1000 });
  return (
    <Await of={figures}>
      {(one) => (
        <div class="overview">
          <Verdict found={one.diagnosis} />
          <Await of={step}>{(picture) => <StepPictureView of={picture} />}</Await>
          <Others found={one.diagnosis} />
          <Warnings lines={one.warnings} />
          <ul class="cards" aria-label="Figures">
            {one.cards.map((card) => (
              <li key={card.name}>
                <CardView card={card} />
              </li>
            ))}
          </ul>
          <Await of={wall}>{(page) => <WallTime page={page} />}</Await>
          <div class="beside">
            <section>
              <h2>Where the {about.cpu_only ? "elapsed" : one.device} time went</h2>
              <Await of={kinds}>{(page) => <Kinds page={page} />}</Await>
              <Top one={one} about={about} />
            </section>
            <section>
              <h2>What steps are made of</h2>
              <Split parts={one.steps} why={one.no_steps} />
              <h2>Time without an op</h2>
              <Without of={one.unattributed} device={one.device} />
            </section>
          </div>
          <section>
            <h2>Advice</h2>
            <Await of={advice}>{(said) => <AdviceView said={said} />}</Await>
          </section>
        </div>
      )}
    </Await>
  );
}

function Warnings({ lines }: { lines: string[] }) {
  if (!lines.length) return null;
  return (
    <details class="warnings" open={lines.length <= 2}>
      <summary>
        {lines.length} {lines.length === 1 ? "warning" : "warnings"} about this trace
      </summary>
      <ul>
        {lines.map((line) => (
          <li key={line}>{visible(line)}</li>
        ))}
      </ul>
    </details>
  );
}

/** Findings after the first that are shown; the report has all. */
const OTHERS = 7;

/** What bounds the run, and what to do: the first finding. */
function Verdict({ found }: { found: Diagnosis[] }) {
  const [first] = found;
  if (!first) return null;
  return (
    <section class="findings verdict" aria-label="Verdict">
      <h2>
        {visible(capital(first.finding))}
        {found.length > 1 && first.rank !== null && <span class="quiet"> (rank {first.rank})</span>}
      </h2>
      <p>{visible(capital(first.text))}.</p>
      {first.to_try && (
        <p class="try">
          <b>What to do:</b> {visible(first.to_try)}
        </p>
      )}
    </section>
  );
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** What was found besides, in the order of what it costs. */
function Others({ found }: { found: Diagnosis[] }) {
  if (found.length < 2) return null;
  return (
    <section class="findings" aria-label="Diagnosis">
      <h3>Also</h3>
      {found.slice(1, 1 + OTHERS).map((one, index) => (
        <div class="finding" key={index}>
          <p>
            <b>{visible(one.finding)}</b>
            {one.rank !== null && <span class="quiet"> rank {one.rank}</span>}
            <span>: {visible(one.text)}</span>
          </p>
          {one.to_try && (
            <p class="try">
              <span class="quiet">To try:</span> {visible(one.to_try)}
            </p>
          )}
        </div>
      ))}
      {found.length > 1 + OTHERS && <p class="quiet">{found.length - 1 - OTHERS} more in the report diagnosis</p>}
    </section>
  );
}

function CardView({ card }: { card: Card }) {
  const known = card.value !== null;
  // a time of the report, shown as its part of the whole
  const part = card.unit === "fraction" && card.column.endsWith("_time");
  const bar = typeof card.share === "number" ? Math.max(0, Math.min(1, card.share)) : null;
  const doubt = card.undetermined ? Math.max(0, Math.min(1 - (bar ?? 0), card.undetermined)) : 0;
  return (
    <a class="card" href={hrefOf(card.page)} title={`${card.report}.${card.column}${part ? ", as a share" : ""}${known ? ` = ${exact(card.value, card.unit)}` : ""}`}>
      <span class="card-title">{visible(card.title)}</span>
      <span class="card-value">{known ? show(card.value, card.unit) : <Unknown why={card.reason} />}</span>
      {(bar !== null || doubt > 0) && known && (
        <span class="card-bar" aria-hidden="true">
          <span class="card-share" style={{ width: `${(bar ?? 0) * 100}%` }} />
          <span class="card-doubt" style={{ width: `${doubt * 100}%` }} />
        </span>
      )}
      {doubt > 0 && <span class="card-detail">not known for {share(card.undetermined)}</span>}
      <span class="card-detail">{visible(known ? card.detail : (card.reason ?? ""))}</span>
    </a>
  );
}

/** The kind of work whose colour each section of a run has; the parts of steps have those of their phases. */
const SECTIONS: Record<string, string> = {
  imports: "reductions",
  compiling: "normalisation",
  building: "elementwise",
  evaluation: "attention",
  checkpoint: "copies",
  "before opscope": "unknown",
  "after opscope": "unknown",
  "while opscope paused": "unknown",
};

/** Sections that are named by where they lie, in words. */
const BETWEEN: Record<string, string> = { before: "before the first op", building: "building, before the first step", between: "between these", after: "after the last step" };

/** All of the wall time of one process: that with steps and the lowest rank, as on the terminal's first screen. */
function WallTime({ page }: { page: TablePage }) {
  const text = (column: string, row: number) => (page.values[column]?.[row] ?? null) as string | null;
  const rows = [...(page.values["process"] ?? []).keys()];
  if (!rows.length) return null;
  const processes = [...new Set(rows.map((row) => page.values["process"]![row]))];
  const stepping = rows.filter((row) => text("section", row) === "steps");
  const rank = (row: number) => numeric(page.values["rank"]?.[row]) ?? Infinity;
  const main = page.values["process"]![[...stepping].sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : a - b))[0] ?? 0];
  const mine = rows.filter((row) => page.values["process"]![row] === main);
  const parts = mine
    .filter((row) => (numeric(page.values["time"]![row]) ?? 0) > 0)
    .map((row) => {
      const [section, part] = [text("section", row) ?? "", text("part", row)];
      const name = part ? `${section}: ${part}` : (BETWEEN[section] ?? section);
      const outside = numeric(page.values["outside_ops"]?.[row]);
      const more = [text("detail", row), text("line", row), outside ? `${time(outside)} outside any op` : null].filter(Boolean).join(", ");
      return {
        name,
        value: numeric(page.values["time"]![row]) ?? 0,
        colour: variableOf(part && part !== "other" ? part : (SECTIONS[section] ?? "outside any op")),
        title: `${name}: ${exact(page.values["time"]![row], "ns")}${more ? `, ${visible(more)}` : ""}`,
      };
    });
  const unknown = mine.filter((row) => page.values["time"]![row] === null);
  const whys = [...new Set(unknown.map((row) => text("reason", row) ?? ""))];
  const of = processes.length > 1 ? ` of process ${String(main)}` : "";
  return (
    <section>
      <h2>All of the wall time{of}</h2>
      <Shares title={`each moment once, ${unknown.length ? "as far as the run is known" : "from the process's start to its exit"}`} parts={parts} show={time} exact={(value) => exact(value, "ns")} />
      {whys.map((why) => (
        <p class="quiet" key={why}>
          {unknown.filter((row) => (text("reason", row) ?? "") === why).map((row) => text("section", row)).join(" and ")}: not known; {visible(why)}
        </p>
      ))}
    </section>
  );
}

function Kinds({ page }: { page: TablePage }) {
  const [names, times, ops] = [page.values["kind"] ?? [], page.values["device_time"] ?? [], page.values["op"] ?? []];
  if (!page.total) return null;
  const parts = names.map((name, index) => ({
    name: String(name ?? "unknown"),
    value: numeric(times[index]) ?? 0,
    colour: variableOf(name as string | null),
    title: `${String(name)}: ${exact(times[index], "ns")}${ops[index] ? `, mostly ${visible(String(ops[index]))}` : ""}`,
  }));
  return <Shares title="by kind of work" parts={parts} show={time} exact={(value) => exact(value, "ns")} />;
}

function Top({ one, about }: { one: Overview; about: About }) {
  if (one.no_ops !== null) return <Empty>{visible(one.no_ops)}</Empty>;
  const most = Math.max(...one.top.map((op) => op.share ?? 0), 1e-9);
  const left = one.ops - one.top.length;
  return (
    <>
      <h3>{one.ops > one.top.length ? `Top ${one.top.length} of ${one.ops.toLocaleString("en")} ops` : "Ops"}</h3>
      <table class="list">
        <thead>
          <tr>
            <th scope="col">op</th>
            <th scope="col" class="right">
              share
            </th>
            <th scope="col" class="right">
              {about.cpu_only ? "elapsed" : "device time"}
            </th>
            <th scope="col" class="right">
              calls
            </th>
          </tr>
        </thead>
        <tbody>
          {one.top.map((op, index) => (
            <TopRow key={index} op={op} most={most} />
          ))}
        </tbody>
      </table>
      <p class="quiet">
        {left > 0 && one.others_share !== null && `${left.toLocaleString("en")} others: ${share(one.others_share)} of the time. `}
        <a href={hrefOf("operators")}>All operators</a>
      </p>
    </>
  );
}

function TopRow({ op, most }: { op: TopOp; most: number }) {
  return (
    <tr>
      <td>
        <span class="with-swatch">
          <span class="swatch" style={{ background: colourOf(op.kind) }} title={op.kind ?? "unknown"} />
          {op.op === null ? <Unknown why={op.reason}>no op{op.reason ? `: ${visible(op.reason)}` : ""}</Unknown> : <Name of="op" value={op.op} />}
          {op.direction && <span class="quiet">{visible(op.direction)}</span>}
        </span>
      </td>
      <td class="right">
        <Share share={(op.share ?? 0) / most}>{op.share === null ? <Unknown /> : share(op.share)}</Share>
      </td>
      <td class="right" title={exact(op.device_time, "ns")}>
        {show(op.device_time, "ns")}
      </td>
      <td class="right">{op.op === null ? "" : show(op.calls, "count")}</td>
    </tr>
  );
}

/** The parts of a step in the order in which they are drawn, as the server names them. */
const COLOURS: Record<string, string> = {
  communication: "communication_part",
  kernels: "kernel_part",
  copies: "copy_part",
  sets: "set_part",
  runtime: "runtime_part",
  loader: "loader_part",
  "CPU ops": "op_part",
  other: "other_part",
};

function Split({ parts, why }: { parts: StepPart[]; why: string | null }) {
  if (!parts.length) return <Empty>{visible(why ?? "no steps were found")}</Empty>;
  const of = new Map<number, StepPart[]>();
  for (const part of parts) of.set(part.process, [...(of.get(part.process) ?? []), part]);
  const drawn = (list: StepPart[]) =>
    list
      .filter((part) => (part.total ?? 0) > 0)
      .map((part) => ({
        name: part.part,
        value: part.total ?? 0,
        colour: variableOf(COLOURS[part.part] ?? part.part),
        title: `${part.part}: ${exact(part.total, "ns")} in all, ${share(part.share)}; median of a step ${show(part.median, "ns")}`,
      }));
  const unknown = [...new Set(parts.filter((part) => part.total === null).map((part) => part.part))];
  const said = unknown.length > 0 && <p class="quiet">Not known: {unknown.map(visible).join(", ")}.</p>;
  if (of.size === 1) {
    return (
      <>
        <Shares title="each moment of all steps once, the first that applies" parts={drawn(parts)} show={time} exact={(value) => exact(value, "ns")} />
        {said}
        <p class="quiet">
          <a href={hrefOf("steps")}>Step by step</a>
        </p>
      </>
    );
  }
  const most = 16;
  const bars = [...of.values()].slice(0, most).map((list) => ({
    name: list[0]!.rank === null ? `process ${list[0]!.process}` : `rank ${list[0]!.rank}`,
    value: list.reduce((sum, part) => sum + (part.total ?? 0), 0),
    parts: drawn(list),
  }));
  const legend = [...new Map(parts.map((part) => [part.part, { name: part.part, colour: variableOf(COLOURS[part.part] ?? part.part) }])).values()];
  return (
    <>
      <Bars bars={bars} show={time} exact={(value) => exact(value, "ns")} legend={legend} />
      {said}
      {of.size > most && (
        <p class="quiet">
          The first {most} of {of.size} processes; <a href={hrefOf("distributed")}>all</a>
        </p>
      )}
    </>
  );
}

function Without({ of, device }: { of: Unattributed; device: string }) {
  if (of.time === null) return <p class="quiet">Not known: {device} work was not captured.</p>;
  const whole = numeric(of.whole);
  const part = whole ? (numeric(of.time) ?? 0) / whole : null;
  if (numeric(of.time) === 0) return <p class="quiet">None: every kernel, copy and set belongs to an op.</p>;
  return (
    <>
      <p>
        <span title={exact(of.time, "ns")}>{show(of.time, "ns")}</span>
        {part !== null && ` of ${show(of.whole, "ns")} (${share(part)})`} belongs to no op:
      </p>
      <ul class="reasons">
        {of.reasons.map((one) => (
          <li key={one.reason}>
            <b title={exact(one.time, "ns")}>{show(one.time, "ns")}</b> {visible(one.reason)}
            <span class="quiet"> {counts(one.kernels, one.copies)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function counts(kernels: number | null, copies: number | null): string {
  const said = [kernels ? `${show(kernels, "count")} kernels` : "", copies ? `${show(copies, "count")} copies and sets` : ""];
  return said.filter(Boolean).join(", ");
}

function AdviceView({ said }: { said: OverviewAdvice }) {
  return (
    <>
      {said.together && <p>{visible(said.together)}</p>}
      {said.advice.length === 0 && <p class="quiet">No detector found anything to change.</p>}
      <ol class="advice">
        {said.advice.map((one) => (
          <AdviceItem key={one.number} one={one} />
        ))}
      </ol>
      {said.rest.length > 0 && (
        <details>
          <summary>Detectors that found nothing, or could not tell</summary>
          <ul>
            {said.rest.map((line) => (
              <li key={line}>{visible(line)}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function AdviceItem({ one }: { one: Advice }) {
  return (
    <li>
      <p>
        <b>{one.saving === null ? <Unknown>saving unknown</Unknown> : <span title={exact(one.saving, "ns")}>{visible(one.saving_text)}</span>}</b>{" "}
        {visible(one.finding)}
      </p>
      <p class="try">{visible(one.recommendation)}</p>
      <p class="quiet">
        {visible(one.detector)}
        {one.confidence && `, confidence ${visible(one.confidence)}`}
      </p>
    </li>
  );
}
