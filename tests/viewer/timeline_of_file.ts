// What tests ask of a single file's timeline under node: answers as JSON, with numbers too large for it as text.
import { FileSource } from "../../web/src/file";
import { timelineOf } from "../../web/src/timeline/data";
import type { CurvePicture, Picture } from "../../web/src/timeline/wire";

type Call = [string, ...unknown[]];

/** Answers calls of the timeline of a file; `text`: the base64 text of a block by its id. */
export async function answers(text: (id: string) => string | null, calls: Call[]): Promise<unknown[]> {
  const timeline = timelineOf(new FileSource(text)) as unknown as Record<string, (...given: unknown[]) => Promise<unknown>>;
  const found: unknown[] = [];
  for (const [name, ...given] of calls) {
    const whole = given.map((one) => (typeof one === "string" && /^-?\d+$/.test(one) ? BigInt(one) : one));
    const answer = await timeline[name]!(...whole);
    found.push(name === "picture" ? pictureOf(answer as Picture) : name === "names" ? [...(answer as Map<number, string>)] : plain(answer as CurvePicture));
  }
  return found;
}

function pictureOf(picture: Picture): unknown {
  const lanes = [...picture.lanes].map(([id, strips]) => [
    id,
    strips.map((one) => ({ ...one, index: Array.from({ length: one.many }, (_, place) => one.index(place)), start: Array.from(one.start), lasted: Array.from(one.lasted), name: Array.from(one.name) })),
  ]);
  return plain({ ...picture, lanes: Object.fromEntries(lanes) });
}

function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (_, one: unknown) => (typeof one === "bigint" ? String(one) : ArrayBuffer.isView(one) ? Array.from(one as Uint8Array) : one)));
}
