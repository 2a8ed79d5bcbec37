// The page Source: time by file and line, the text of a file beside its times where that may be shown.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { intoView } from "../framed";
import type { Page, PageProps } from "../page";
import { useAnswer } from "../parts/answer";
import { FlameSection } from "../parts/flame_section";
import { exact, show, visible } from "../parts/format";
import { chooseEditor, chosenEditor, EDITORS, type Editor, Jump, lineOf } from "../parts/jump";
import { Await } from "../parts/states";
import { Share } from "../parts/share";
import { DataTable } from "../parts/table";
import type { SourceFiles, SourceText } from "../source_files";
import { hrefOf, setParams } from "../state";

/** Lines of a file that are drawn at once. */
const LINES = 4_000;
/** Files that are listed at first. */
const FILES = 30;

function SourcePage({ source, params }: PageProps) {
  const files = useAnswer<SourceFiles>(source, "source");
  const stack = params.get("source");
  const place = stack === null ? null : lineOf(stack);
  const file = params.get("file") ?? place?.file ?? null;
  const line = Number(params.get("line") ?? place?.line ?? 0) || null;
  return (
    <>
      <FlameSection source={source} params={params} first="source" />
      <Await of={files}>
        {(found) =>
          found.files.length ? (
            <>
              <Files found={found} chosen={file} />
              {file !== null && <Text source={source} file={file} line={line} served={found.editor} />}
            </>
          ) : (
            <div class="empty">
              <p>{visible(found.empty ?? "no source lines were recorded")}</p>
              <p>opscope run and init(source=True) record the user's lines; so does torch.profiler with with_stack=True.</p>
            </div>
          )
        }
      </Await>
      {stack !== null && (
        <DataTable
          source={source}
          name="detail"
          id="line_ops"
          where={{ source: stack }}
          q=""
          sort="-device_time"
          columns={["op", "direction", "layer", "inputs", "calls", "device_time", "share", "flops", "kernels"]}
          title={`Ops called from ${visible(stack.slice(0, 200))}`}
          height={320}
        />
      )}
      <DataTable
        source={source}
        name="by_source"
        sort="-device_time"
        columns={["source", "device_time", "share", "kind", "op", "layer", "calls", "kernels", "flops", "reason"]}
        selected={stack === null ? null : { source: stack }}
        onSelect={(row) => setParams({ source: row["source"] === null ? undefined : String(row["source"]), file: undefined, line: undefined }, false)}
        height={420}
      />
    </>
  );
}

function Files({ found, chosen }: { found: SourceFiles; chosen: string | null }) {
  const [most, setMost] = useState(FILES);
  const { files } = found;
  return (
    <section>
      <h2>Files</h2>
      <div class="scrolled">
        <table class="files-table">
          <thead>
            <tr>
              <th>file</th>
              <th class="number" title="of all ops that it called, also through other files">time</th>
              <th class="number">share</th>
              <th class="number" title="of ops whose innermost line is in it">own</th>
              <th class="number">lines</th>
              <th class="number">calls</th>
              <th>text</th>
            </tr>
          </thead>
          <tbody>
            {files.slice(0, most).map((one) => (
              <tr key={one.file} aria-selected={one.file === chosen}>
                <th scope="row" title={visible(one.file)}>
                  <a href={hrefOf("source", { file: one.file })}>{visible(one.file)}</a>
                </th>
                <td class="number" title={exact(one.time, "ns")}>{show(one.time, "ns")}</td>
                <td class="number">
                  <Share share={one.share ?? 0}>{show(one.share, "fraction")}</Share>
                </td>
                <td class="number" title={exact(one.self_time, "ns")}>{show(one.self_time, "ns")}</td>
                <td class="number">{exact(one.lines, "count")}</td>
                <td class="number">{exact(one.calls, "count")}</td>
                <td class="quiet files-text">{one.reason === null ? "shown" : visible(one.reason)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {files.length > most && (
        <button type="button" onClick={() => setMost(most + FILES)}>
          {(files.length - most).toLocaleString("en")} more files
        </button>
      )}
      <p class="chart-note">
        {found.whole === null ? (
          "The time is not known: kernels were not captured."
        ) : (
          <>
            Of {show(found.whole, "ns")}, <b title={exact(found.without, "ns")}>{show(found.without, "ns")}</b> have no source line. A file's
            time is that of all ops that it called, also through others: files do not add up.
          </>
        )}
      </p>
    </section>
  );
}

interface TextProps {
  source: PageProps["source"];
  file: string;
  line: number | null;
  /** Lines are opened by the server's `--editor`. */
  served: boolean;
}

function Text({ source, file, line, served }: TextProps) {
  const answered = useAnswer<SourceText>(source, "source", { file });
  const [editor, setEditor] = useState<Editor>(chosenEditor);
  return (
    <section>
      <h2>{visible(file)}</h2>
      {!served && (
        <label class="field">
          <span>lines open in</span>
          <select
            aria-label="The editor that lines open in"
            value={editor}
            onChange={(event) => {
              chooseEditor(event.currentTarget.value as Editor);
              setEditor(event.currentTarget.value as Editor);
            }}
          >
            {EDITORS.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      <Await of={answered}>
        {(text) => <Lines text={text} line={line} editor={editor} />}
      </Await>
    </section>
  );
}

function Lines({ text, line, editor }: { text: SourceText; line: number | null; editor: Editor }) {
  const row = useRef<HTMLTableRowElement>(null);
  const lines = useMemo(() => text.text?.split("\n") ?? null, [text]);
  const at = useMemo(() => new Map(text.line.map((number, index) => [number, index])), [text]);
  useEffect(() => {
    intoView(row.current);
  }, [line, text]);
  const most = Math.max(...text.time.map((time) => time ?? 0), 1);
  const numbers = lines ? lines.map((_, index) => index + 1).slice(0, LINES) : [...text.line].sort((a, b) => a - b);
  return (
    <>
      {text.reason !== null && <p class="chart-note">The text is not shown: {visible(text.reason)}.</p>}
      {text.note !== null && <p class="chart-note">{visible(text.note)}</p>}
      {lines && lines.length > LINES && (
        <p class="chart-note">
          The first {LINES.toLocaleString("en")} of {lines.length.toLocaleString("en")} lines are shown.
        </p>
      )}
      <div class="scrolled code-scroll" tabIndex={0} role="region" aria-label={`Lines of ${text.file}`}>
        <table class="code">
          <thead>
            <tr>
              <th class="number">line</th>
              <th class="number" title="of the ops that it called, also through others">time</th>
              <th class="number">share</th>
              <th>{lines ? "text" : "the op with most of it"}</th>
            </tr>
          </thead>
          <tbody>
            {numbers.map((number) => {
              const index = at.get(number);
              const time = index === undefined ? null : text.time[index]!;
              return (
                <tr key={number} ref={number === line ? row : undefined} aria-selected={number === line} class={index === undefined ? undefined : "timed"}>
                  <td class="number">
                    {number} <Jump key={editor} line={{ file: text.file, line: number }} />
                  </td>
                  <td class="number" title={index === undefined ? undefined : `${exact(time, "ns")}; own ${exact(text.self_time[index], "ns")}; ${exact(text.calls[index], "count")} calls`}>
                    {index === undefined ? "" : show(time, "ns")}
                  </td>
                  <td class="number">
                    {time !== null && text.whole && <Share share={time / most}>{show(time / text.whole, "fraction")}</Share>}
                  </td>
                  <td>
                    {lines ? (
                      <code>{visible((lines[number - 1] ?? "").replace(/\t/g, "    ").slice(0, 2_000))}</code>
                    ) : (
                      <span>{index === undefined ? "" : visible(text.op[index] ?? "")}</span>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}

export const PAGE: Page = { name: "source", title: "Source", key: "c", component: SourcePage };
