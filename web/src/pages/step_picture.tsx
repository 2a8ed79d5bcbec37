// The verdict's evidence: a median step drawn, with its phases, when devices ran, and while what they were idle.
import { colourOf } from "../parts/colours";
import { exact, numeric, share, time, visible } from "../parts/format";
import { timelineOf } from "../parts/name";
import "./step_picture.css";

/** What the question `step_picture` answers (opscope/viewer/questions/step_picture.py). Times are ns. */
export interface StepPicture {
  /** Why there is no step. */
  why: string | null;
  step?: number | null;
  process?: number;
  rank?: number | null;
  start?: number | string;
  end?: number | string;
  time?: number;
  lanes: Lane[];
}

interface Lane {
  name: string;
  /** Begin and end from the step's begin, and what it is. */
  segments: [number, number, string][];
  sums: Record<string, number>;
  /** When nothing ran, and in which phase of the program. */
  idle?: number;
  idle_in?: Record<string, number>;
}

export function StepPictureView({ of }: { of: StepPicture }) {
  const whole = of.time ?? 0;
  if (of.why !== null || !whole) return null;
  const [program, ...working] = of.lanes;
  const names = Object.keys(program?.sums ?? {});
  const what = [of.step == null ? "no steps are known: all of it" : `step ${of.step}`, of.rank != null ? `rank ${of.rank}` : null].filter(Boolean).join(" of ");
  return (
    <figure class="step-picture" aria-label={of.step == null ? "All of the time" : "A median step"}>
      <figcaption>
        <b>{of.step == null ? "Where the time goes" : "Where a median step's time goes"}</b>{" "}
        <span class="quiet">
          {what}, <span title={exact(whole, "ns")}>{time(whole)}</span>; <a href={timelineOf(String(of.start), String(of.end))}>on the timeline</a>
        </span>
      </figcaption>
      <div class="step-lanes">
        {of.lanes.map((lane) => (
          <LaneRow key={lane.name} lane={lane} whole={whole} />
        ))}
      </div>
      <ul class="step-legend">
        {names
          .sort((a, b) => program!.sums[b]! - program!.sums[a]!)
          .map((name) => (
            <li key={name} title={exact(program!.sums[name], "ns")}>
              <span class="swatch" style={{ background: colour(name) }} />
              {visible(name)} <b>{share(program!.sums[name]! / whole)}</b> {time(program!.sums[name])}
            </li>
          ))}
      </ul>
      {working.map((lane) => (
        <Idle key={lane.name} lane={lane} whole={whole} />
      ))}
    </figure>
  );
}

function LaneRow({ lane, whole }: { lane: Lane; whole: number }) {
  return (
    <>
      <span class="quiet">{visible(lane.name)}</span>
      <span class={lane.idle === undefined ? "step-lane" : "step-lane idle"} aria-hidden="true">
        {lane.segments.map(([begin, end, what], index) => (
          <i
            key={index}
            title={`${what}: ${time(end - begin)}, from ${time(begin)}`}
            style={{ left: `${(begin / whole) * 100}%`, width: `${((end - begin) / whole) * 100}%`, background: colour(what) }}
          />
        ))}
      </span>
    </>
  );
}

/** "device 0 ran nothing for 86.7 ms (49.2 %): 68.7 ms of it during input". */
function Idle({ lane, whole }: { lane: Lane; whole: number }) {
  const idle = numeric(lane.idle) ?? 0;
  const parts = Object.entries(lane.idle_in ?? {})
    .sort((a, b) => b[1] - a[1])
    .filter(([, value]) => value >= idle / 100);
  if (!idle) return <p>{visible(lane.name)}: no moment without work.</p>;
  return (
    <p>
      {lane.name === "ops" ? "No op was open" : `${visible(lane.name)} ran nothing`} for <b title={exact(idle, "ns")}>{time(idle)}</b> ({share(idle / whole)})
      {parts.length > 0 && !(parts.length === 1 && parts[0]![0] === "other") && <>: {parts.map(([name, value]) => `${time(value)} during ${visible(name)}`).join(", ")}</>}.
    </p>
  );
}

function colour(what: string): string {
  return what === "busy" ? "var(--accent)" : colourOf(what === "other" ? "outside" : what);
}
