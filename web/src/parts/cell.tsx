// One cell of a table.
import { exact, show, showIn, visible } from "./format";
import { isQuantity, placeOf, whyUnknown } from "./columns";
import { Middle, Name, timelineOf, Unknown } from "./name";
import type { Row, TableColumn } from "./rows";
import { colourOf, hasColour } from "./colours";

interface Props {
  table: string;
  column: TableColumn;
  row: Row;
  start: number | string | null;
  /** Names lead to their pages; not where a click selects the row. */
  links: boolean;
}

export function Cell({ table, column, row, start, links }: Props) {
  const value = row[column.name];
  if (value === null || value === undefined) {
    const why = whyUnknown(column, row);
    if (nameless(column, row)) return <span class="none">({visible(why!)})</span>;
    if (isQuantity(column) || column.kind === "yes/no") return <Unknown why={why ?? "the trace does not tell, or it does not apply to this row"} />;
    return (
      <span class="none" title="none, or not recorded">
        –
      </span>
    );
  }
  if (column.kind === "text" || column.kind === "list") {
    const text = column.kind === "list" ? show(value, "text") : String(value);
    if ((column.name === "kind" || column.name === "op_type") && hasColour(text)) {
      return (
        <>
          <span class="swatch" style={{ background: colourOf(text) }} />
          <Middle text={text} />
        </>
      );
    }
    const place = links ? placeOf(table, column.name) : null;
    return place && place !== "step" ? <Name of={place} value={text} /> : <Middle text={text} />;
  }
  const text = showIn(column, value, start);
  const title = exact(value, column.unit);
  if (column.name === "start" && row["end"] !== null && row["end"] !== undefined) {
    return (
      <a href={timelineOf(String(value), String(row["end"]))} title={`${title}; show on the timeline`}>
        {text}
      </a>
    );
  }
  if (column.name === "share" && typeof value === "number" && value >= 0) {
    return (
      <span class="shared" title={title}>
        <span class="bar" style={{ width: `${Math.min(value, 1) * 100}%` }} />
        {text}
      </span>
    );
  }
  if (links && column.name === "step") return <Name of="step" value={String(value)} />;
  return <span title={title === text ? undefined : title}>{text}</span>;
}

/** Whether the row is time of no op: then the reason stands in the op's place, as in a terminal. */
function nameless(column: TableColumn, row: Row): boolean {
  return column.name === "op" && row["op"] === null && typeof row["reason"] === "string" && row["reason"] !== "";
}

/** A cell's whole text, for copying and for the line below the table. */
export function cellText(column: TableColumn, row: Row): string {
  const value = row[column.name];
  if (value === null || value === undefined) {
    const why = whyUnknown(column, row);
    if (nameless(column, row)) return `(${why})`;
    return isQuantity(column) ? `unknown${why ? `: ${why}` : ""}` : "–";
  }
  return exact(value, column.kind === "text" || column.kind === "list" ? "text" : column.unit);
}
