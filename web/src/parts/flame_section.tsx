// The flame graph with the choice of what its frames are; the zoomed frame is in the address.
import { useContext } from "preact/hooks";
import type { Source } from "../source";
import { setParams } from "../state";
import { AboutContext } from "./about";
import { useAnswer } from "./answer";
import { Flame } from "./flame";
import type { FlameAnswer } from "./flame_layout";
import { Await } from "./states";
import { Tabs } from "./tabs";

const ON_DEVICES: Record<string, string> = {
  layer: "Layers and their ops",
  op: "Steps, layers, ops and kernels",
  source: "Source lines and their ops",
};

/** Of a run without a GPU, which has no kernels. */
const ON_CPUS: Record<string, string> = { ...ON_DEVICES, op: "Steps, layers and ops" };

export function FlameSection({ source, params, first }: { source: Source; params: URLSearchParams; first: string }) {
  const titles = useContext(AboutContext)?.cpu_only ? ON_CPUS : ON_DEVICES;
  const asked = params.get("flame");
  const by = asked && Object.hasOwn(titles, asked) ? asked : first;
  const answered = useAnswer<FlameAnswer>(source, "flame", { by });
  return (
    <section class="flame-section">
      <Tabs
        label="Frames of the flame graph"
        name="flame"
        now={by}
        of={Object.entries(titles).map(([value, text]) => ({ value, text }))}
        clears={["zoom"]}
      />
      <Await of={answered}>
        {(answer) =>
          answer.parent.length ? (
            <Flame
              answer={answer}
              title={titles[answer.by] ?? ""}
              search={params.get("q") ?? ""}
              zoomed={Number(params.get("zoom") ?? 0) || 0}
              onZoom={(node) => setParams({ zoom: node ? String(node) : undefined }, false)}
            />
          ) : (
            <p class="chart-note">No time was recorded in this selection.</p>
          )
        }
      </Await>
    </section>
  );
}
