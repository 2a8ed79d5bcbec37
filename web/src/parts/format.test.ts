// A value as text is within rounding of the value, never says none or all of what is some, and hides no character.
// @ts-nocheck: node's own types are not installed
import assert from "node:assert/strict";
import { test } from "node:test";
import { exact, share, show, showIn, since, UNKNOWN, visible } from "./format";
import { positionOf, rowAt, TALLEST } from "./scroll";

const PREFIX = { "": 1, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const TIME = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9 };

let seed = 7;
function random(): number {
  seed = (seed * 48271) % 2147483647;
  return seed / 2147483647;
}
function* values(): Generator<number> {
  yield* [0, 1, 9.994, 9.996, 99.94, 99.96, 999, 999.4, 999.5, 999.6, 1000, 999_499, 999_500, 999_999, 1e6, 1e9, 999_999_999];
  for (let count = 0; count < 4_000; count++) yield Math.round(10 ** (random() * 17));
}

test("a time read back is within half of its third digit", () => {
  for (const value of values()) {
    const [, number, unit] = /^([\d,.]+) (ns|µs|ms|s)$/.exec(show(value, "ns"));
    const back = Number(number.replace(/,/g, "")) * TIME[unit];
    assert.ok(Math.abs(back - value) <= value * 0.00502, `${value}: ${show(value, "ns")}`);
  }
});

for (const [unit, short] of [["bytes", "B"], ["FLOP", "FLOP"], ["FLOP/s", "FLOP/s"], ["bytes/s", "B/s"]]) {
  test(`${unit} read back are within half of the third digit`, () => {
    for (const value of values()) {
      const found = new RegExp(`^([\\d,.]+) ([kMGTP]?)${short}$`).exec(show(value, unit));
      assert.ok(found, show(value, unit));
      const back = Number(found[1].replace(/,/g, "")) * PREFIX[found[2]];
      assert.ok(Math.abs(back - value) <= value * 0.00502, `${value}: ${show(value, unit)}`);
    }
  });
}

test("exact text has every digit, beyond 2^53 too", () => {
  for (const value of values()) assert.equal(exact(value, "ns").replace(/,/g, ""), `${value} ns`);
  assert.equal(exact("1623212388431242001", "ns"), "1,623,212,388,431,242,001 ns");
});

test("a share is never rounded to none or to all", () => {
  for (let count = 0; count < 4_000; count++) {
    const value = count % 2 ? random() ** 8 : 1 - random() ** 8;
    const text = share(value);
    if (value > 0) assert.notEqual(text, "0.0 %");
    if (value < 1) assert.notEqual(text, "100.0 %");
    if (/^[\d.]/.test(text)) assert.ok(Math.abs(Number(text.slice(0, -2)) - value * 100) <= 0.0501);
  }
  assert.equal(share(1), "100.0 %");
  assert.equal(share(0), "0.0 %");
  assert.equal(share(-0), "0.0 %");
  assert.equal(share(-0.00001), ">-0.1 %");
  assert.equal(share(-0.99999), "<-99.9 %");
  assert.equal(share(-1), "-100.0 %");
});

test("what is not known is unknown, never 0", () => {
  for (const unit of ["ns", "bytes", "FLOP", "fraction", "count", "number", "text", "yes/no", "value"]) {
    for (const value of [null, undefined]) {
      assert.equal(show(value, unit), UNKNOWN);
      assert.equal(exact(value, unit), UNKNOWN);
    }
  }
  assert.equal(show(Number.NaN, "ns"), UNKNOWN);
});

test("points in time are counted from the start of the trace, exactly", () => {
  assert.equal(since("1623212388431242001", "1623212388431242000"), "+1 ns");
  assert.equal(showIn({ name: "start", unit: "ns" }, 2_500_000, 0), "+2.5000 ms");
  assert.equal(since(5, 10), "−5 ns");
});

test("characters that would hide or turn text are seen", () => {
  assert.equal(visible("a\u202eb\u0000\n"), "a\\u202eb\\x00\\x0a");
  assert.equal(visible("naïve ≤ 漢字 😀"), "naïve ≤ 漢字 😀");
});

test("every row can be reached, the first and last too, however many there are", () => {
  for (const rows of [1, 10, 1_000, 499_999, 1_000_000, 50_000_000]) {
    const [row, room] = [26, 400];
    assert.equal(rowAt(0, rows, row, room), 0);
    const most = Math.max(0, rows - room / row);
    for (const first of [0, most / 3, most]) {
      const position = positionOf(first, rows, row, room);
      assert.ok(position >= 0 && position <= TALLEST);
      assert.ok(Math.abs(rowAt(position, rows, row, room) - first) < 1e-3);
    }
  }
});
