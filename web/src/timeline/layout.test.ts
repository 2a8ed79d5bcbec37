// Where curves and lanes lie: lanes are seen before most sampled curves.
// @ts-nocheck: node's own modules have no types here
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LaneSaid } from "./data";
import { laidOut, RULER, SAMPLED } from "./layout";
import type { Curve } from "./wire";

const curve = (title: string, device = 0): Curve => ({ title, process: 0, device, unit: "fraction", most: 1, how: "", values: new Float32Array(1) });
const lane = (id: string): LaneSaid => ({ id, kind: "stream", group: "train.py: device 0", title: id, process: 0, device: 0, levels: 1 }) as LaneSaid;

const said = (curves: Curve[], sampled: number, open = new Set([SAMPLED])): string[] =>
  laidOut([lane("stream 7")], curves, sampled, open, false).bands.map((one) => (one.kind === "curve" ? one.title : one.kind === "lane" ? one.lane.id : `[${one.text}]`));

test("most sampled curves stand below the lanes, so that these are seen first", () => {
  const curves = [curve("device busy"), curve("SM efficiency"), curve("process CPU", -1), curve("GPU memory used"), curve("GPU clock")];
  assert.deepEqual(said(curves, 3), ["device busy", "SM efficiency", "GPU memory used", "[train.py: device 0]", "stream 7", "[2 sampled curves]", "process CPU", "GPU clock"]);
  // folded until they are opened
  assert.deepEqual(said(curves, 3, new Set()), ["device busy", "SM efficiency", "GPU memory used", "[train.py: device 0]", "stream 7", "[2 sampled curves]"]);
});

test("without a device the processors' use and memory stand above", () => {
  const curves = [curve("machine CPU", -1), curve("process CPU", -1), curve("process memory", -1)];
  assert.deepEqual(said(curves, 3), ["process CPU", "process memory", "[train.py: device 0]", "stream 7", "[1 sampled curve]", "machine CPU"]);
});

test("the host's memory and a device's are told apart", () => {
  assert.deepEqual(said([curve("memory in use", -1), curve("memory in use"), curve("device busy")], 0), ["CPU: memory in use", "device 0: memory in use", "device busy", "[train.py: device 0]", "stream 7"]);
});

test("each band begins where the one above ends, and keeps the number of its curve", () => {
  const { bands, height } = laidOut([lane("stream 7")], [curve("device busy"), curve("GPU clock"), curve("GPU memory used")], 2, new Set([SAMPLED]), false);
  let y = RULER;
  for (const band of bands) {
    assert.equal(band.y, y);
    y += band.height;
  }
  assert.ok(height >= y);
  assert.deepEqual(bands.flatMap((one) => (one.kind === "curve" ? [one.curve] : [])), [0, 2, 1]);
});
