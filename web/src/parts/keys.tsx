// Keys that work on every page, and the list of them.
import { useEffect, useRef } from "preact/hooks";
import { PAGES } from "../pages";
import { hrefOf } from "../state";

const EVERYWHERE: [string, string][] = [
  ["/", "search"],
  ["?", "this list"],
  ["Esc", "close, or leave the field"],
];
const IN_TABLES: [string, string][] = [
  ["↑ ↓ ← →", "move from cell to cell; ↑ from the first row reaches the headings"],
  ["Enter", "select the row, or sort by the heading"],
  ["Home End", "first and last row"],
  ["PgUp PgDn", "a screen of rows"],
  ["f", "only rows with this cell's value"],
  ["c", "copy this cell"],
];
const IN_TIMELINE: [string, string][] = [
  ["w s", "zoom in and out at the mouse; the wheel does so with Ctrl held"],
  ["drag", "measure a span and add up what is in it; with shift held, move"],
  ["a d", "move left and right"],
  ["b B", "next and previous slice with the name of the selected one"],
  ["n N", "next and previous hit of the search"],
];

/** Whether the user is writing into a field. */
function writing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function Keys({ open, onOpen }: { open: boolean; onOpen: (open: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);

  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);

  useEffect(() => {
    // never, not 0: the page's own clock begins at 0
    let g = -Infinity;
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (writing(event.target)) {
        if (event.key === "Escape") (event.target as HTMLElement).blur();
        return;
      }
      if (dialog.current?.open) return;
      const page = event.timeStamp - g < 1_500 ? PAGES.find((one) => one.key === event.key) : undefined;
      g = -Infinity;
      if (page) location.hash = hrefOf(page.name);
      else if (event.key === "g") g = event.timeStamp;
      else if (event.key === "?") onOpen(true);
      else if (event.key === "/") document.getElementById("search")?.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    // Before the page's own keys: the letter after g is never one of theirs
    addEventListener("keydown", pressed, { capture: true });
    return () => removeEventListener("keydown", pressed, { capture: true });
  }, [onOpen]);

  return (
    <dialog ref={dialog} class="keys" aria-label="Keys" onClose={() => onOpen(false)}>
      <form method="dialog">
        <h2>Keys</h2>
        <List title="Everywhere" keys={[...EVERYWHERE, ...PAGES.map((one): [string, string] => [`g ${one.key}`, one.title])]} />
        <List title="In tables" keys={IN_TABLES} />
        <List title="On the timeline" keys={IN_TIMELINE} />
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}

function List({ title, keys }: { title: string; keys: [string, string][] }) {
  return (
    <>
      <h3>{title}</h3>
      <dl>
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
