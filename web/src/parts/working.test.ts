// The words of what the server is doing.
// @ts-nocheck: node's own types are not installed
import { deepEqual } from "node:assert/strict";
import { test } from "node:test";
import { wordsOf } from "./working";

const one = { question: "overview", seconds: 0.3, doing: null, done: null, total: null, unit: "" };

test("what is done is said with its share and, if it takes long, its seconds", () => {
  deepEqual(wordsOf([]), "Working …");
  deepEqual(wordsOf([one]), "Working …");
  deepEqual(wordsOf([one, { ...one, doing: "linking kernels to ops", done: 1, total: 3 }]), "Linking kernels to ops, 33 % …");
  deepEqual(wordsOf([{ ...one, doing: "reading", done: 3, total: null, seconds: 7.9 }]), "Reading … (7 s)");
  deepEqual(wordsOf([{ ...one, doing: "reading", done: 0, total: 0 }]), "Reading …");
});
