// The page Compare: what explains the difference of the step between two runs, and what changed where.
import type { Page, PageProps } from "../page";
import { Bars } from "../parts/charts/bars";
import { Figures } from "../parts/figures";
import { exact, show, visible } from "../parts/format";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { Tabs } from "../parts/tabs";
import { useAnswer } from "../parts/answer";
import { useWhole, type Whole } from "../parts/whole";

const TABLES: Record<string, string> = {
  diff_op: "Ops that changed",
  diff_cause: "Parts by op",
  diff_kernel: "Other kernels",
  diff_part: "Parts",
  diff_run: "The runs",
};

function Compare({ source, about, params }: PageProps) {
  const asked = params.get("table") ?? "diff_op";
  const name = Object.hasOwn(TABLES, asked) ? asked : "diff_op";
  if (!about.other.length) {
    return (
      <div class="empty">
        <p>Only one run is open. To see what changed from A to B: opscope view A --compare B</p>
      </div>
    );
  }
  return (
    <>
      <p class="quiet">
        A: {about.files.map(visible).join(", ")} · B: {about.other.map(visible).join(", ")}
      </p>
      <Step source={source} />
      <Tabs
        label="Tables of the difference"
        name="table"
        now={name}
        of={Object.entries(TABLES).map(([value, text]) => ({ value, text }))}
      />
      <DataTable key={name} source={source} name={name} height={520} />
    </>
  );
}

function signed(value: number, unit = "ns"): string {
  return value > 0 ? `+${show(value, unit)}` : show(value, unit);
}

/** The answer of the question "difference"; times in ns, means per step. */
interface Difference {
  headline: string;
  step: {
    unit: string;
    a: number | null;
    b: number | null;
    change: number | null;
    ratio: number | null;
    noise: number | null;
    verdict: string | null;
    steps_a: number | null;
    steps_b: number | null;
    reason: string | null;
  };
  notes: string[];
}

/** The step in both runs, and its parts as signed bars that add up to the difference. */
function Step({ source }: { source: PageProps["source"] }) {
  const difference = useAnswer<Difference>(source, "difference");
  const parts = useWhole(source, "diff_part", {}, 1_000);
  const causes = useWhole(source, "diff_cause", {}, 12);
  return (
    <Await of={difference}>
      {({ headline, step, notes }) => (
        <>
          <p class="headline">{visible(headline)}</p>
          <Figures
            of={[
              { name: `${step.unit} of A`, value: step.a, unit: "ns", why: step.reason, note: many(step.steps_a, step.unit) },
              { name: `${step.unit} of B`, value: step.b, unit: "ns", why: step.reason, note: many(step.steps_b, step.unit) },
              {
                name: "difference",
                value: step.change,
                unit: "ns",
                why: step.reason,
                note: step.ratio === null ? "" : signed(step.ratio, "fraction"),
              },
              {
                name: "noise",
                value: step.noise,
                unit: "ns",
                why: step.reason,
                title: "how far the typical steps of the two runs may differ by chance",
              },
              { name: "verdict", value: step.verdict, unit: "text", why: step.reason },
            ]}
          />
          {notes.map((note) => (
            <p key={note} class="chart-note">
              {visible(note)}
            </p>
          ))}
          <Await of={parts}>{(table) => <Parts table={table} change={step.change} unit={step.unit} />}</Await>
          <Await of={causes}>
            {(table) =>
              table.many ? (
                <Bars
                  title={
                    table.complete
                      ? "The same by op"
                      : `The same by op: the ${table.many} largest of ${table.page.total.toLocaleString("en")}`
                  }
                  bars={Array.from({ length: table.many }, (_, at) => ({
                    name: visible([table.text("part", at), table.text("op", at)].filter(Boolean).join(": ")),
                    value: table.number("change", at),
                    note: table.text("verdict", at) ?? "",
                    title: titled(table, at),
                  }))}
                  show={(value) => signed(value)}
                  exact={(value) => exact(value, "ns")}
                />
              ) : null
            }
          </Await>
        </>
      )}
    </Await>
  );
}

function many(count: number | null, unit: string): string {
  return count === null || unit === "run" ? "" : `mean of ${count.toLocaleString("en")}`;
}

function titled(table: Whole, row: number): string {
  const times = ["a", "b", "change"].map((column) => `${column} ${exact(table.of(column)[row] ?? null, "ns")}`);
  return [table.text("op", row) ?? table.text("part", row), table.text("layer", row), table.text("inputs", row), ...times]
    .filter((one): one is string => !!one)
    .map((one) => visible(one.slice(0, 300)))
    .join("\n");
}

function Parts({ table, change, unit }: { table: Whole; change: number | null; unit: string }) {
  if (!table.many) return <p class="chart-note">{visible(table.page.empty)}</p>;
  const values = table.numbers("change");
  const sum = values.reduce<number>((all, one) => all + (one ?? 0), 0);
  const unknown = Array.from({ length: table.many }, (_, row) => row).filter((row) => table.text("reason", row) !== null);
  return (
    <>
      <Bars
        title={`What explains the difference of the ${unit}`}
        bars={Array.from({ length: table.many }, (_, row) => ({
          name: table.text("part", row) ?? "?",
          value: values[row] ?? null,
          note: [table.text("verdict", row), table.number("share", row) === null ? "" : show(table.of("share")[row], "fraction")]
            .filter(Boolean)
            .join(", "),
          title: titled(table, row),
        }))}
        show={(value) => signed(value)}
        exact={(value) => exact(value, "ns")}
        legend={[
          { name: "B takes longer", colour: "--worse" },
          { name: "B takes less", colour: "--better" },
        ]}
      />
      <p class="chart-note">
        The parts add up to <b title={exact(sum, "ns")}>{signed(sum)}</b>
        {change !== null && Math.abs(sum - change) < 1 ? `, the difference of the ${unit}.` : "."}
      </p>
      {unknown.map((row) => (
        <p key={row} class="chart-note">
          {visible(table.text("part", row) ?? "?")}: {visible(table.text("reason", row)!)}
        </p>
      ))}
    </>
  );
}

export const PAGE: Page = { name: "compare", title: "Compare", key: "x", component: Compare };
