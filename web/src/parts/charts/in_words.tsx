// A chart's figures as a table, for who reads and does not look.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import "./charts.css";

const ROWS = 200;

/** A chart's figures as a table, made when it is opened. */
export function InWords(props: {
  head: string[];
  many: number;
  row: (index: number) => ComponentChildren[];
}) {
  const [open, setOpen] = useState(false);
  const rows = Math.min(props.many, ROWS);
  return (
    <details class="in-words" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>as a table</summary>
      {open && (
        <div class="scrolled">
          <table>
            <thead>
              <tr>
                {props.head.map((name) => (
                  <th key={name}>{name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {Array.from({ length: rows }, (_, index) => (
                <tr key={index}>
                  {props.row(index).map((cell, column) => (
                    <td key={column}>{cell}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
          {props.many > rows && <p>{(props.many - rows).toLocaleString("en")} more are not listed here.</p>}
        </div>
      )}
    </details>
  );
}
