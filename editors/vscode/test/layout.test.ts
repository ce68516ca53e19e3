import assert from "node:assert/strict";
import { test } from "node:test";
import {
  fillRegions, findGuesses, follow, isAt, keepSpaces, layPreview, locate, offsetIn, type PendingFill, putBack, type Region, rewrite, shift, shorten, type Span,
} from "../src/layout.ts";

const range = (line: number, character: number, lastLine: number, lastCharacter: number) =>
  ({ start: { line, character }, end: { line: lastLine, character: lastCharacter } });

test("a preview takes the lines of its hole and joins the rest", () => {
  const hole = { range: range(4, 4, 5, 8), text: "a = 1\n    b = 2\n    c = 3", settled: [[0, 15]] as [number, number][], masked: 3 };
  assert.deepEqual(layPreview(hole), [
    { line: 4, settled: "a = 1", rest: "", isFaint: false }, { line: 5, settled: "    b = 2", rest: " ⏎ c = 3", isFaint: false },
  ]);
  assert.deepEqual(layPreview({ ...hole, settled: [[0, 25]] })[1], { line: 5, settled: "    b = 2 ⏎ c = 3", rest: "", isFaint: false });
});

test("what is settled is told from what is guessed", () => {
  const hole = { range: range(0, 0, 0, 3), text: "abcdef", settled: [[0, 2], [2, 3], [4, 6]] as [number, number][], masked: 1 };
  assert.deepEqual(layPreview(hole), [{ line: 0, settled: "abc", rest: "def", isFaint: false }]);
  assert.deepEqual(layPreview({ ...hole, settled: [] }), [{ line: 0, settled: "", rest: "abcdef", isFaint: false }]);
  assert.deepEqual(findGuesses(hole, false), [[3, 4]]);
  assert.deepEqual(findGuesses({ ...hole, settled: [] }, false), [[0, 6]]);
});

test("guesses that are unlikely are faint, settled tokens never", () => {
  const tokens: Span[] = [[0, 2], [2, 3], [3, 5], [5, 6]];
  const hole = { range: range(0, 0, 0, 3), text: "abcdef", settled: [[0, 2]] as Span[], masked: 2, tokens, confidence: [0.1, 0.9, 0.2, 0.3] };
  assert.deepEqual(findGuesses(hole, true), [[3, 5], [5, 6]]);
  assert.deepEqual(layPreview(hole), [{ line: 0, settled: "ab", rest: "cdef", isFaint: true }]);
  assert.equal(layPreview({ ...hole, confidence: [0.1, 0.9, 0.9, 0.3] })[0].isFaint, false);
});

test("regions follow edits elsewhere, every edit inside is seen", () => {
  const shown = "aa\nb\r\nbcdé😀xbb\n";
  const regions: Region[] = [{ start: 3, old: "bb", at: 3, now: "b" }, { start: 7, old: "cc", at: 6, now: "bcdé😀" }, { start: 9, old: "", at: 12, now: "xb" }];
  for (let start = 0; start <= shown.length; start++) {
    for (let end = start; end <= Math.min(start + 2, shown.length); end++) {
      for (const text of ["", "b", "\n", "xyz"]) {
        const followed = follow(regions, [{ rangeOffset: start, rangeLength: end - start, text }]);
        const actual = shown.slice(0, start) + text + shown.slice(end);
        followed?.forEach(({ at, now }) => assert.equal(actual.slice(at, at + now.length), now));
        assert.equal(followed === undefined, regions.some(({ at, now }) => start < at + now.length && end > at));
      }
    }
  }
  assert.deepEqual(rewrite(regions, ["", "cc", "é"]).map(({ at, now }) => [at, now]), [[3, ""], [5, "cc"], [7, "é"]]);
});

test("a range moves with the text before it, one that is touched is let go", () => {
  const before = "aa\nbb\r\ncc dd ee\nff";
  const place = (text: string, offset: number) => {
    const lines = text.slice(0, offset).split(/\r\n|\r|\n/);
    return { line: lines.length - 1, character: lines[lines.length - 1].length };
  };
  const span = (text: string, from: number, to: number) => ({ start: place(text, from), end: place(text, to) });
  const at = before.indexOf("dd");
  const cuts = (offset: number) => before.slice(offset - 1, offset + 1) === "\r\n";
  for (let from = 0; from <= before.length; from++) {
    for (let to = from; to <= before.length; to++) {
      if (cuts(from) || cuts(to)) continue;
      for (const text of ["", "x", "x\r\ny", "\n\n"]) {
        const after = before.slice(0, from) + text + before.slice(to);
        const now = to < at ? at + text.length - (to - from) : at;
        const wanted = from <= at + 2 && to >= at ? undefined : span(after, now, now + 2);
        assert.deepEqual(shift(span(before, at, at + 2), { range: span(before, from, to), text }), wanted);
      }
    }
  }
});

test("a fill's edits become what the regions hold", () => {
  const before = "one\r\ntwo\r\nthree";
  const regions: Region[] = [{ start: 0, old: "one", at: 0, now: "?" }, { start: 5, old: "two", at: 3, now: "??" }];
  assert.equal(offsetIn(before, { line: 2, character: 1 }), 11);
  const edits = [{ range: range(0, 1, 0, 2), newText: "XX" }, { range: range(1, 0, 1, 3), newText: "2" }];
  assert.deepEqual(fillRegions(before, regions, edits), ["oXXe", "2"]);
  assert.deepEqual(fillRegions(before, regions, []), ["one", "two"]);
  assert.equal(fillRegions(before, regions, [{ range: range(2, 0, 2, 1), newText: "" }]), undefined);
});

test("offsets of a fill are found in the document, wide characters count two", () => {
  const hole = { range: range(9, 4, 10, 9), text: "x = '😀'\n    y", tokens: [], confidence: [] };
  assert.deepEqual(locate(hole, 7), { line: 9, character: 11 });
  assert.deepEqual(locate(hole, 14), { line: 10, character: 5 });
});

test("a range holds its ends", () => {
  const found = [[0, 9], [1, 2], [1, 3], [2, 0], [2, 1], [2, 2]].map(([line, character]) => isAt(range(1, 3, 2, 1), { line, character }));
  assert.deepEqual(found, [false, false, true, true, true, false]);
});

test("the middle of a long text gives way", () => {
  assert.equal(shorten("like `total`"), "like `total`");
  const long = shorten("like `OpenAIRealtimeWebSocketModel.remove_listener`");
  assert.equal(long, "like `OpenAIRealtimeWe….remove_listener`");
  assert.equal(shorten("😀".repeat(41)), `${"😀".repeat(22)}…${"😀".repeat(17)}`);
});

test("spaces are kept", () => assert.equal(keepSpaces("  a"), "\u00a0\u00a0a"));

test("the old text is the new one with the old lines of every hunk", () => {
  const hole = { range: range(0, 0, 0, 0), original: "" };
  const fills = [
    { holes: [{ ...hole, hunks: [{ range: range(2, 0, 3, 0), text: "" }] }] },
    { holes: [{ ...hole, hunks: [{ range: range(0, 1, 0, 3), text: "😀\r\nx" }, { range: range(1, 0, 1, 1), text: "b" }] }] },
  ] as PendingFill[];
  assert.equal(putBack("a12\r\nB\r\nnew\r\nd", fills), "a😀\r\nx\r\nb\r\nd");
});
