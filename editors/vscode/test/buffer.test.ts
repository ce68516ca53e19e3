// No order of steps, keys, saves and endings loses a text: RUNS random fills over a window that is ahead of the extension.
import assert from "node:assert/strict";
import { test } from "node:test";
import { findAnimation, openAnimation, watchDocuments } from "../src/buffer.ts";
import { FakeDocument, FakeEditor, hide, makeChance, seedDelays, window, workspace } from "./fake-vscode.ts";

const RUNS = Number(process.env.RUNS ?? 300);
const SEED = Number(process.env.SEED ?? 1);
let chance = makeChance(SEED);
const pick = (count: number) => Math.floor(chance() * count);
const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));
const MARK = /[\ue000-\uf8ff]/g; // one character each, of nobody else
const place = (line: number, character: number) => ({ line, character });
const noise = () => ["a", "a\nb", "b\nb", "", "x = 'ß😀'\n    y", "bb"][pick(6)];

let server = "";
watchDocuments();
// As extension.ts does: of a change while there is an animation the server hears nothing.
workspace.onDidChangeTextDocument(({ document }) => {
  if (!findAnimation(document.uri.toString())) server = document.getText();
});

async function run(eol: string, number: number): Promise<string> {
  const normal = (text: string) => text.replaceAll("\n", eol);
  const before = normal("import a\nbb = 1\n\ndef f():\n    bb\n");
  const document = new FakeDocument(before);
  window.visibleTextEditors = [new FakeEditor(document)];
  server = before;
  const animation = openAnimation(document.uri.toString(), (changed) => { server = changed.getText(); })!;
  const holes = [{ start: place(1, 0), end: place(1, 2) }, { start: place(4, 4), end: place(4, 6) }];
  const starts = [before.indexOf("bb"), before.lastIndexOf("bb")];
  const show = (texts: string[]) =>
    before.slice(0, starts[0]) + normal(texts[0]) + before.slice(starts[0] + 2, starts[1]) + normal(texts[1]) + before.slice(starts[1] + 2);
  const states = [["bb", "bb"]];
  const typed: { mark: string; isInside: boolean }[] = [];
  const most = pick(6);
  for (let step = 0; step < most; step++) {
    const texts = [noise(), noise()];
    states.push(texts);
    void animation.show(holes.map((range, index) => ({ range, text: texts[index], settled: [], masked: 1, tokens: [[0, 1]], confidence: [0.1] })));
    if (pick(3)) await sleep(pick(6));
    if (number % 3 && !pick(5)) {
      const [mark, offset] = [String.fromCharCode(0xe000 + step), pick(document.text.length + 1)];
      const clean = document.text.replace(MARK, "");
      const at = document.text.slice(0, offset).replace(MARK, "").length;
      const state = states.find((texts) => show(texts) === clean)!;
      assert.ok(state, `the window shows what nobody wrote: ${JSON.stringify(document.text)}`);
      const [first, second] = [starts[0], starts[1] + normal(state[0]).length - 2];
      const isInside = (at > first && at < first + normal(state[0]).length) || (at > second && at < second + normal(state[1]).length);
      typed.push({ mark, isInside });
      document.type(offset, mark);
    }
    if (!pick(25)) hide();
  }
  const end = ["stop", "finish", "save", "hide"][pick(4)];
  const fills = ["FILL\nED", "x"];
  if (end === "save") {
    const saved = (await document.save()).replace(MARK, "");
    if (!typed.some(({ isInside }) => isInside)) assert.equal(saved, before, "noise was saved");
  }
  if (end === "hide") hide();
  const done = end === "finish" && await animation.finish(holes.map((range, index) => ({ range, newText: fills[index] })));
  await animation.stop();
  await document.rest();
  for (const { mark } of typed) assert.ok(document.text.includes(mark), `${mark} is lost in ${JSON.stringify(document.text)}`);
  const clean = document.text.replace(MARK, "");
  if (done) assert.equal(clean, show(fills));
  else if (!typed.some(({ isInside }) => isInside)) assert.equal(clean, before);
  else assert.ok(states.some((texts) => show(texts) === clean), JSON.stringify(clean));
  assert.equal(findAnimation(document.uri.toString()), undefined);
  assert.equal(server, document.text, "the server has another text");
  if (done && !typed.length) assert.equal(document.undo.pop(), before, "more than one undo step");
  assert.ok(!document.undo.length || document.undo[0] === before, "undo does not end at the old text");
  return done ? "filled" : end;
}

test(`${RUNS} random fills in the buffer`, { timeout: 3_000_000 }, async () => {
  const ends: Record<string, number> = {};
  for (let number = 0; number < RUNS; number++) {
    chance = makeChance(SEED + number);
    seedDelays(SEED + number);
    const end = await run(number % 2 ? "\r\n" : "\n", number).catch((error) => {
      throw new Error(`run ${number} of SEED=${SEED}`, { cause: error });
    });
    ends[end] = (ends[end] ?? 0) + 1;
  }
  console.log(JSON.stringify(ends));
  assert.ok(["filled", "stop", "save", "hide"].every((end) => ends[end]));
});
