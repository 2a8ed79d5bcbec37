// A small link beside each source line that opens it in the reader's own editor.
import { useContext, useState } from "preact/hooks";
import { ServerSource } from "../source";
import { AboutContext } from "./about";
import { wordsFor } from "./answer";
import { visible } from "./format";

export interface Line {
  file: string;
  line: number;
}

/** Returns the innermost line of a stack of lines: `a.py:12 < b.py:3` is line 12 of a.py. */
export function lineOf(stack: string): Line | null {
  const [first] = stack.split(" < ", 1);
  const parts = /^(.*):(\d+)$/s.exec(first ?? "");
  return parts ? { file: parts[1]!, line: Number(parts[2]) } : null;
}

/** How editors are asked for a line; the first is what is used until another is chosen. */
const ADDRESSES = {
  "VS Code": ({ file, line }: Line) => `vscode://file${encodeURI(file.startsWith("/") ? file : `/${file}`).replace(/[?#]/g, encodeURIComponent)}:${line}`,
  PyCharm: ({ file, line }: Line) => `pycharm://open?file=${encodeURIComponent(file)}&line=${line}`,
};
export type Editor = keyof typeof ADDRESSES | "none";
export const EDITORS = [...(Object.keys(ADDRESSES) as Editor[]), "none" as const];
const KEY = "opscope-editor";

export function chosenEditor(): Editor {
  try {
    const kept = localStorage.getItem(KEY) as Editor | null;
    if (kept && EDITORS.includes(kept)) return kept;
  } catch {
    // A sandboxed frame has no storage
  }
  return EDITORS[0]!;
}

export function chooseEditor(editor: Editor): void {
  try {
    localStorage.setItem(KEY, editor);
  } catch {
    // Then the first one stays
  }
}

/** The address that opens a line; null for a path that is not of this machine's disks, which no editor can know. */
export function addressOf(line: Line, editor: Editor): string | null {
  // `//host/share` would have the editor's machine ask another one
  const local = /^\/(?![/\\])/.test(line.file) || /^[A-Za-z]:[/\\](?![/\\])/.test(line.file);
  if (editor === "none" || !local) return null;
  try {
    return ADDRESSES[editor](line);
  } catch {
    return null; // half a character is in the name
  }
}

/** Opens a line: by the server's `--editor`, else by an address that the chosen editor takes. */
export function Jump({ line, label = "↗" }: { line: Line | null; label?: string }) {
  const about = useContext(AboutContext);
  const [said, setSaid] = useState<string | null>(null);
  if (!line) return null;
  const title = said ?? `open ${visible(line.file)}:${line.line} in the editor`;
  if (about?.editor) {
    const open = (event: Event) => {
      event.stopPropagation();
      new ServerSource().ask("open", { file: line.file, line: line.line }).then(
        () => setSaid("opened"),
        (failure) => setSaid(wordsFor(failure)),
      );
    };
    return (
      <button type="button" class="plain jump" title={title} aria-label={title} onClick={open}>
        {label}
      </button>
    );
  }
  const address = addressOf(line, chosenEditor());
  return address === null ? null : (
    <a class="jump" href={address} title={title} aria-label={title} onClick={(event) => event.stopPropagation()}>
      {label}
    </a>
  );
}
