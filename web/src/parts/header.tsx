// The top line: what is viewed, the global selection of steps, device, rank and search, the theme.
import { useEffect, useState } from "preact/hooks";
import type { About } from "../page";
import type { Source } from "../source";
import { setParams } from "../state";
import { visible } from "./format";
import { Middle } from "./name";
import { Search } from "./search";
import { choose, useTheme } from "./theme";

const FIXED = "A file shows what was selected when it was written. opscope view FILE lets you choose.";

interface Props {
  source: Source;
  about: About | undefined;
  params: URLSearchParams;
  onHelp: () => void;
}

export function Header({ source, about, params, onHelp }: Props) {
  return (
    <header class="header">
      <span class="brand">opscope</span>
      {about?.of_runs && <a href="../../">all runs</a>}
      {about && <Files about={about} />}
      {about && (
        <div class="selection">
          {about.selected !== null && (
            <span class="chip" title={FIXED}>
              {visible(about.selected)}
            </span>
          )}
          <Steps source={source} about={about} value={params.get("steps") ?? ""} />
          {about.devices.length > 1 && (
            <Choose
              name="device"
              source={source}
              value={params.get("device") ?? ""}
              options={about.devices.map((one) => [String(one.device), `${one.device} ${visible(one.name)}`])}
            />
          )}
          {about.ranks.length > 1 && (
            <Choose
              name="rank"
              source={source}
              value={params.get("rank") ?? ""}
              options={about.ranks.map((rank) => [String(rank), String(rank)])}
            />
          )}
          <Search source={source} about={about} value={params.get("q") ?? ""} />
        </div>
      )}
      <div class="tools">
        <Theme />
        <button type="button" class="icon" title="Keys (?)" aria-label="Keys" onClick={onHelp}>
          ?
        </button>
      </div>
    </header>
  );
}

function Files({ about }: { about: About }) {
  const names = (files: string[]) => files.map((file) => visible(file)).join("\n");
  const one = (files: string[]) => (files[0] ?? "").split(/[\\/]/).pop() ?? "";
  const more = (files: string[]) => (files.length > 1 ? ` and ${files.length - 1} more` : "");
  return (
    <span class="files" title={[names(about.files), about.other.length ? `compared with\n${names(about.other)}` : ""].filter(Boolean).join("\n")}>
      <Middle text={one(about.files) + more(about.files)} title="" />
      {about.other.length > 0 && (
        <>
          <span class="quiet">with</span>
          <Middle text={one(about.other) + more(about.other)} title="" />
        </>
      )}
    </span>
  );
}

function Steps({ source, about, value }: { source: Source; about: About; value: string }) {
  const [text, setText] = useState(value);
  const [wrong, setWrong] = useState("");
  useEffect(() => (setText(value), setWrong("")), [value]);
  if (!about.steps) return null;
  const { first, last, marked } = about.steps;
  const range = first === last ? `${first}` : `${first}-${last}`;
  // without steps those that were found are selected, which the Steps page lists
  const what = marked ? "Steps" : "Iterations";
  const send = () => {
    const steps = stepRange(text);
    if (steps === null) setWrong(`Write ${marked ? "a step" : "an iteration"} or a range: ${first}, or ${first}-${last}`);
    else {
      setWrong("");
      setParams({ steps }, false);
    }
  };
  return (
    <label class="field" title={source.live ? `${what} ${first} to ${last}${marked ? "" : ", as found: no steps were marked"}: one, or a range` : FIXED}>
      <span>{what.toLowerCase()}</span>
      <input
        class="steps"
        type="text"
        inputMode="numeric"
        autocomplete="off"
        disabled={!source.live}
        placeholder={range}
        style={{ width: `${Math.max(9, range.length + 4)}ch` }}
        value={text}
        aria-invalid={wrong !== ""}
        aria-label={`${what}, from ${first} to ${last}`}
        onInput={(event) => setText(event.currentTarget.value)}
        onChange={send}
        onKeyDown={(event) => event.key === "Enter" && send()}
      />
      {wrong && (
        <span class="wrong" role="alert">
          {wrong}
        </span>
      )}
    </label>
  );
}

/** "3-8", "3" or "" as the server takes it; null if the text is no range. */
export function stepRange(text: string): string | null {
  if (text.trim() === "") return "";
  const parts = /^\s*(\d{1,18})(?:\s*[-–…:]\s*(\d{1,18}))?\s*$/.exec(text);
  if (!parts) return null;
  const from = BigInt(parts[1]!);
  const to = BigInt(parts[2] ?? parts[1]!);
  return from <= to ? `${from}-${to}` : `${to}-${from}`;
}

interface ChooseProps {
  name: string;
  source: Source;
  value: string;
  options: [string, string][];
}

function Choose({ name, source, value, options }: ChooseProps) {
  return (
    <label class="field" title={source.live ? undefined : FIXED}>
      <span>{name}</span>
      <select disabled={!source.live} value={value} onChange={(event) => setParams({ [name]: event.currentTarget.value }, false)}>
        <option value="">all</option>
        {options.map(([key, text]) => (
          <option key={key} value={key} selected={key === value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

const SIGN = { light: "☀", dark: "☾" };

/** Each click changes what is seen; what the system has is followed again once it is chosen. */
function Theme() {
  const theme = useTheme();
  const next = theme === "dark" ? "light" : "dark";
  return (
    <button type="button" class="icon" title={`Theme: ${theme}`} aria-label={`Theme: ${theme}; change to ${next}`} onClick={() => choose(next)}>
      {SIGN[theme]}
    </button>
  );
}
