// The page Reports: every table there is, by subject, and the chosen one whole.
import type { Page, PageProps } from "../page";
import { useAnswer } from "../parts/answer";
import { visible } from "../parts/format";
import { Await } from "../parts/states";
import { DataTable } from "../parts/table";
import { hrefOf } from "../state";

export const PAGE: Page = { name: "reports", title: "Reports", key: "e", component: Reports };

/** What the question `reports` answers (opscope/viewer/questions/reports.py). */
export interface ReportsAnswer {
  reports: { name: string; title: string; row: string; subject: string; other_names: string[] }[];
}

function Reports({ source, params }: PageProps) {
  const all = useAnswer<ReportsAnswer>(source, "reports");
  const name = params.get("report");
  return (
    <>
      {name !== null && <DataTable key={name} source={source} name={name} id="report" />}
      <Await of={all}>{(answer) => <List answer={answer} chosen={name} />}</Await>
    </>
  );
}

function List({ answer, chosen }: { answer: ReportsAnswer; chosen: string | null }) {
  const subjects = [...new Set(answer.reports.map((one) => one.subject))];
  return (
    <section class="reports">
      {chosen === null && <p class="quiet">The same tables as opscope report FILE --reports NAME.</p>}
      {subjects.map((subject) => (
        <section key={subject}>
          <h2>{subject}</h2>
          <ul>
            {answer.reports
              .filter((one) => one.subject === subject)
              .map((one) => (
                <li key={one.name}>
                  <a href={hrefOf("reports", { report: one.name })} aria-current={one.name === chosen ? "true" : undefined} title={visible(one.row)}>
                    {visible(one.title)}
                  </a>{" "}
                  <span class="quiet">{one.name}</span>
                </li>
              ))}
          </ul>
        </section>
      ))}
    </section>
  );
}
