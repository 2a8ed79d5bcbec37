// A point at the edge of a decade is drawn whole.
// @ts-nocheck: node's own modules have no types here
import assert from "node:assert/strict";
import { test } from "node:test";
import { decades } from "./decades";

test("points near a decade's end have a decade more, lines have not", () => {
  assert.deepEqual(decades([8.6e9, 2e5], []), [1e5, 1e11]);
  assert.deepEqual(decades([1e3, 1e4], [1e2, 1e6]), [10, 1e7]);
  for (const value of [1, 1.9, 5, 9.99, 10]) {
    const [low, high] = decades([value], []);
    assert.ok(Math.log10(value / low) >= 0.3 - 1e-9 && Math.log10(high / value) >= 0.3 - 1e-9, String(value));
  }
});
