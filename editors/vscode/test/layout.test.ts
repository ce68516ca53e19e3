import assert from "node:assert/strict";
import { test } from "node:test";
import { findWeak, keepSpaces, layPreview, locate } from "../src/layout.ts";

const range = (line: number, character: number, lastLine: number, lastCharacter: number) =>
  ({ start: { line, character }, end: { line: lastLine, character: lastCharacter } });

test("a preview takes the lines of its hole and joins the rest", () => {
  const hole = { range: range(4, 4, 5, 8), text: "a = 1\n    b = 2\n    c = 3", settled: [[0, 15]] as [number, number][], masked: 3 };
  assert.deepEqual(layPreview(hole), [
    { line: 4, settled: "a = 1", rest: "" }, { line: 5, settled: "    b = 2", rest: " ⏎ c = 3" },
  ]);
  assert.deepEqual(layPreview({ ...hole, settled: [[0, 25]] })[1], { line: 5, settled: "    b = 2 ⏎ c = 3", rest: "" });
});

test("what is settled is told from what is guessed", () => {
  const hole = { range: range(0, 0, 0, 3), text: "abcdef", settled: [[0, 2], [2, 3], [4, 6]] as [number, number][], masked: 1 };
  assert.deepEqual(layPreview(hole), [{ line: 0, settled: "abc", rest: "def" }]);
  assert.deepEqual(layPreview({ ...hole, settled: [] }), [{ line: 0, settled: "", rest: "abcdef" }]);
});

test("offsets of a fill are found in the document, wide characters count two", () => {
  const hole = { range: range(9, 4, 10, 9), text: "x = '😀'\n    y", tokens: [], confidence: [] };
  assert.deepEqual(locate(hole, 7), { line: 9, character: 11 });
  assert.deepEqual(locate(hole, 14), { line: 10, character: 5 });
});

test("the weakest tenth over all holes, at least one", () => {
  const tokens: [number, number][] = Array.from({ length: 20 }, (_, index) => [index, index + 1]);
  const one = { range: range(0, 0, 0, 20), text: "a".repeat(20), tokens, confidence: tokens.map((_, index) => 0.5 + index / 100) };
  const other = { range: range(3, 0, 3, 1), text: "b", tokens: [[0, 1]] as [number, number][], confidence: [0.1] };
  assert.deepEqual(findWeak([one, other]).map((found) => found.start), [
    { line: 3, character: 0 }, { line: 0, character: 0 }, { line: 0, character: 1 },
  ]);
  assert.deepEqual(findWeak([]), []);
});

test("spaces are kept", () => assert.equal(keepSpaces("  a"), "\u00a0\u00a0a"));
