// The layout of the flame graph: widths are shares of the time, searches count nested time once.
// @ts-nocheck: node's own modules have no types here
import assert from "node:assert/strict";
import { test } from "node:test";
import { apart, labelOf, matching, nameOf, neighbour, path, seen, treeOf } from "./flame_layout";

const answer = {
  by: "op",
  measure: "device" as const,
  total: 100,
  family: { mm: "gemm" },
  names: ["(all)", "step", "mm", "(other)"],
  name: [0, 1, 2, 2, 3],
  kind: ["all", "step", "op", "op", "other"],
  link: [null, null, null, null, null],
  parent: [-1, 0, 1, 2, 0],
  time: [100, 90, 60, 20, 10],
  own: [0, 30, 40, 20, 10],
  merged: [1, 1, 1, 1, 7],
  calls: [null, 1, 2, 2, null],
};
const tree = treeOf(answer);

test("widths are shares of what is zoomed", () => {
  const whole = new Map(seen(tree, 0, 0).map((frame) => [frame.node, frame]));
  assert.equal(whole.get(1)!.width, 0.9);
  assert.equal(whole.get(4)!.left, 0.9);
  const zoomed = new Map(seen(tree, 2, 0).map((frame) => [frame.node, frame]));
  assert.equal(zoomed.get(0)!.width, 1);
  assert.equal(zoomed.get(3)!.width, 1 / 3);
  assert.ok(!zoomed.has(4));
});

test("frames that are too narrow are not drawn", () => {
  assert.ok(!seen(tree, 0, 0.15).some((frame) => frame.node === 4));
});

test("a search counts nested hits once and never what is merged", () => {
  const { hit, time } = matching(tree, "MM");
  assert.deepEqual(hit, [false, false, true, true, false]);
  assert.equal(time, 60);
  assert.equal(matching(tree, "other").time, 0);
});

test("arrow keys go around the tree", () => {
  assert.equal(neighbour(tree, 0, "ArrowDown"), 1);
  assert.equal(neighbour(tree, 1, "ArrowRight"), 4);
  assert.equal(neighbour(tree, 4, "ArrowRight"), 4);
  assert.equal(neighbour(tree, 3, "ArrowUp"), 2);
  assert.deepEqual(path(tree, 3), [0, 1, 2, 3]);
  assert.equal(nameOf(tree, 4), "… 7 smaller");
});

test("labels of siblings stay different however little room there is", () => {
  const names = ["(all)", "aten::convolution", "aten::convolution_backward", "aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward", "void k<float, 1>", "void k<float, 2>"];
  const many = names.length;
  const siblings = treeOf({
    ...answer,
    names,
    name: names.map((_, index) => index),
    kind: names.map((_, index) => (index ? "kernel" : "all")),
    parent: names.map((_, index) => (index ? 0 : -1)),
    link: names.map(() => null),
    time: names.map((_, index) => (index ? 10 : 60)),
    own: names.map(() => 0),
    merged: names.map(() => 1),
    calls: names.map(() => 1),
  });
  const from = apart(siblings);
  for (const most of [8, 9, 10, 12, 16, 20, 30, 40]) {
    const labels = names.slice(1).map((name, index) => labelOf(name, most, from[index + 1]!));
    assert.equal(new Set(labels).size, many - 1, `${most}: ${labels.join(" | ")}`);
    assert.ok(labels.every((label) => label.length <= most), `${most}: ${labels.join(" | ")}`);
  }
  assert.equal(labelOf("aten::convolution", 11, 17), "convolution");
});
