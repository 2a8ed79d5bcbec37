// Cells of rows and columns by strength, as a table.
import "./charts.css";
import type { Known } from "./series";

/** Cells of rows and columns by strength, each with its value as text for the pointer and the reader. */
export function HeatMap(props: {
  title: string;
  rows: string[];
  columns: string[];
  /** Row by row. */
  values: Known[][];
  show: (value: number) => string;
  rowName: string;
  columnName: string;
}) {
  const most = Math.max(...props.values.flat().map((value) => value ?? 0), Number.MIN_VALUE);
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{props.title}</span>
        <span class="chart-legend">
          rows: {props.rowName}; columns: {props.columnName}
        </span>
      </figcaption>
      <div class="scrolled">
        <table class="heat">
          <thead>
            <tr>
              <th />
              {props.columns.map((name) => (
                <th key={name}>{name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {props.rows.map((name, row) => (
              <tr key={name}>
                <th>{name}</th>
                {props.columns.map((column, index) => {
                  const value = props.values[row]?.[index] ?? null;
                  return (
                    <td
                      key={column}
                      class={value === null ? "none" : value / most > 0.55 ? "strong" : ""}
                      style={{ "--strength": `${value === null ? 0 : Math.round((value / most) * 100)}%` }}
                      title={`${name}, ${column}: ${value === null ? "nothing" : props.show(value)}`}
                    >
                      {value === null ? "" : props.show(value)}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}
