// One cell of a table.
import { exact, shortSource, show, showIn, visible } from "./format";
import { inapplicable, isQuantity, ofNoOp, placeOf, unknownBecause, whyUnknown } from "./columns";
import { Jump, lineOf } from "./jump";
import { cut, Kernel, Middle, Name, timelineOf, Unknown } from "./name";
import type { Row, TableColumn } from "./rows";
import { Share } from "./share";
import { colourOf, hasColour } from "./colours";

interface Props {
  table: string;
  column: TableColumn;
  row: Row;
  start: number | string | null;
  /** Names lead to their pages; not where a click selects the row. */
  links: boolean;
  /** The share that is drawn as a full bar. */
  full: number;
}

export function Cell({ table, column, row, start, links, full }: Props) {
  const value = row[column.name];
  if (value === null || value === undefined) {
    const why = whyUnknown(column, row);
    if (nameless(column, row)) return <span class="none">({visible(why!)})</span>;
    // what does not apply is blank; what is unknown says why
    if (ofNoOp(row) || inapplicable(column, row) || !(isQuantity(column) || column.kind === "yes/no")) return null;
    return <Unknown why={unknownBecause(column, row) ?? `the trace does not tell: ${column.meaning}`} />;
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
    if (placeOf(table, column.name) === "kernel") return <Kernel name={text} link={links} />;
    if (place && place !== "step") return <Name of={place} value={text} />;
    if (column.name !== "source") return <Middle text={text} />;
    return (
      <span class="named">
        <Middle text={shortSource(text)} title={visible(cut(text, 4_000))} />
        <Jump line={lineOf(text)} />
      </span>
    );
  }
  if (column.name === "device" && value === -1) return <span title="the host's memory: no device">CPU</span>;
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
      <Share share={value / full} title={title}>
        {text}
      </Share>
    );
  }
  if (links && column.name === "step") return <Name of="step" value={String(value)} />;
  return <span title={title === text ? undefined : title}>{text}</span>;
}

/** Whether the row is time of no op: then the reason stands in the op's place, as in a terminal. */
function nameless(column: TableColumn, row: Row): boolean {
  return column.name === "op" && ofNoOp(row);
}

/** A cell's whole text, for copying and for the line below the table. */
export function cellText(column: TableColumn, row: Row): string {
  const value = row[column.name];
  if (value === null || value === undefined) {
    if (nameless(column, row)) return `(${whyUnknown(column, row)})`;
    if (ofNoOp(row) || inapplicable(column, row) || !isQuantity(column)) return "";
    const why = unknownBecause(column, row);
    return `unknown${why ? `: ${why}` : ""}`;
  }
  return exact(value, column.kind === "text" || column.kind === "list" ? "text" : column.unit);
}
