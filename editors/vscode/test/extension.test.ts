// Which document a command acts on, and what is remembered of fills and holes. Needs no server and no window.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { activate } from "../src/extension.ts";
import { LanguageClient } from "./fake-client.ts";
import { findKey, parseKeys } from "../src/keys.ts";
import { hover } from "../src/pending.ts";
import { close, contexts, FakeDocument, FakeEditor, goTo, Position, Range, registered, show, tellChanges, tellConfiguration, told, window, workspace } from "./fake-vscode.ts";

const [a, b] = ["file:///a.py", "file:///b.py"].map((uri) => new FakeEditor(new FakeDocument("one\ntwo\nthree\n", uri)));
const rest = () => new Promise((done) => setImmediate(done));
const client = () => LanguageClient.last;
const range = (line: number, from: number, to: number) => new Range(new Position(line, from), new Position(line, to));
const command = (name: string) => registered[`midfill.${name}`]();
const edits = [
  { range: new Range(new Position(0, 1), new Position(0, 1)), text: "\n# typed" },
];

let serve = () => {};
LanguageClient.started = new Promise((done) => { serve = done; });
const kept = new Map<string, string>();
const workspaceState = { get: (key: string) => kept.get(key), update: async (key: string, value: string) => void kept.set(key, value) };
await activate({ subscriptions: [], workspaceState, extensionPath: "/nowhere", globalStorageUri: { fsPath: "/nowhere/store" } } as never);
goTo(a);
a.selections = [range(1, 1, 1)];
const early = command("fillBody");
a.selections = [range(0, 0, 0)];
await rest();
const first = client();
const isAskedTooEarly = first.requests.length > 0;
serve();
while (!first.requests.length) await rest();
first.requests[0].answer({});
await early;

beforeEach(async () => {
  [a, b].forEach(({ document }) => close(document));
  LanguageClient.startsAreRefused = false;
  await command("restart");
  told.length = 0;
});

/** The server says that fills are pending in the editor's document, one on each line. */
async function fillIn(editor: FakeEditor, ...ids: number[]): Promise<void> {
  return fillInWith(editor, ["same", "shorter", "longer"], ...ids);
}

async function fillInWith(editor: FakeEditor, lengths: string[], ...ids: number[]): Promise<void> {
  const stats = { steps: 4, tokens: 50, ms: 500, cachedContext: true };
  const fills = ids.map((id, line) => ({
    id, holes: [{ range: range(line, 0, 1), original: "x", hunks: [] }], weak: [range(line, 0, 1)], errors: [], newErrors: 1, alternatives: 2, lengths, stats,
  }));
  client().tell("midfill/didChangePending", { uri: editor.document.uri.toString(), fills });
  for (let turn = 0; turn < 3; turn++) await rest();
}

test("a key that comes before the server means the place where the cursor was", () => {
  const place = { line: 1, character: 1 };
  assert.equal(isAskedTooEarly, false);
  assert.deepEqual(first.requests[0].params.ranges, [{ start: place, end: place }]);
});

test("only the lengths that the model heeds are on", async () => {
  goTo(a);
  await fillIn(a, 7);
  assert.deepEqual([contexts["midfill.canShorten"], contexts["midfill.canLengthen"]], [true, true]);
  await fillInWith(a, ["same", "shorter"], 7);
  assert.deepEqual([contexts["midfill.canShorten"], contexts["midfill.canLengthen"]], [true, false]);
  await fillIn(a);
  assert.deepEqual([contexts["midfill.canShorten"], contexts["midfill.canLengthen"]], [false, false]);
});

test("keys are on where something is pending, and name the cursor's place", async () => {
  goTo(a);
  await fillIn(a, 7, 8);
  assert.equal(contexts["midfill.pending"], true);
  goTo(b);
  await rest();
  assert.equal(contexts["midfill.pending"], false);
  goTo(a);
  a.selections = [range(1, 1, 1)];
  for (const [name, sent, more] of [["discardFill", "discard"], ["acceptFill", "accept"], ["finishFill", "finish"], ["allEdits", "repeat", { action: "all" }]] as const) {
    void command(name);
    while (!client().requests.length) await rest();
    const place = { uri: "file:///a.py", position: { line: 1, character: 1 }, previewToken: undefined };
    assert.deepEqual(client().requests.pop()!.params, { command: `midfill.${sent}`, arguments: [{ ...place, ...more }] });
  }
  await fillIn(a);
  assert.equal(contexts["midfill.pending"], false);
});

test("a pending fill is drawn in every editor that shows it, whenever it does", async () => {
  const split = new FakeEditor(a.document);
  goTo(a);
  await fillIn(a, 7);
  const num = a.numShown;
  assert.ok(num >= 2);
  show(a, split, b);
  assert.deepEqual([split.numShown, b.numShown], [num, 0]);
  await fillIn(a);
  assert.deepEqual([a.numShown, split.numShown], [0, 0]);
  await fillIn(b, 9);
  assert.deepEqual([a.numShown, b.numShown], [0, num]);
});

test("hover tells speed and cache", async () => {
  await fillIn(a, 7);
  const text = (line: number) => (hover(a.document as never, new Position(line, 1))?.contents as unknown as { value: string })?.value;
  assert.match(text(0), /50 tokens in 4 steps, 500 ms, 100 tokens\/s, context from the cache, 2 alternatives, 1 new syntax error/);
  assert.equal(text(1), undefined);
});

test("keys are the user's own", () => {
  const own = [{ command: "a", key: "alt+enter", mac: "cmd+enter" }, { command: "b", key: "alt+r" }];
  const user = parseKeys('// mine\n[{ "key": "ctrl+k ctrl+a", "command": "a" /* x */ }, { "key": "alt+r", "command": "-b" }, 3,]');
  assert.deepEqual([findKey("a", own, [], false), findKey("a", own, [], true), findKey("b", own, [], false)], ["Alt+Enter", "Cmd+Enter", "Alt+R"]);
  assert.deepEqual([findKey("a", own, user, false), findKey("b", own, user, false), findKey("c", own, user, false)], ["Ctrl+K Ctrl+A", "", ""]);
  assert.deepEqual(parseKeys("[{"), []);
});

test("what goes wrong is one sentence, a dead server too, a cancelled fill is none, nor what the server has shown", async () => {
  goTo(a);
  a.selections = [range(0, 0, 0)];
  const ended = "Midfill: the server ended; it is started again. Try again.";
  for (const [code, wanted, data] of [[-32803, ["as it is"], null], [-32800, [], undefined], [-32097, [ended], undefined], [-32803, [], { shown: true }]] as const) {
    told.length = 0;
    const done = command("fillBody");
    while (!client().requests.length) await rest();
    client().requests.pop()!.fail(Object.assign(new Error("as it is"), { code, data }));
    await done;
    assert.deepEqual(told, wanted);
  }
});

test("fills are forgotten with their server, which may be started again after it failed", async () => {
  goTo(a);
  await fillIn(a, 1);
  client().end();
  await rest();
  assert.deepEqual([contexts["midfill.pending"], a.numShown], [false, 0]);
  await fillIn(a, 1);
  await command("restart");
  await rest();
  assert.equal(contexts["midfill.pending"], false);
  LanguageClient.startsAreRefused = true;
  await command("restart");
  const failed = client();
  await command("restart");
  assert.notEqual(client(), failed);
});

test("another command of the server is started at once, another setting is told", async () => {
  const [before, changed] = [client(), (key: string) => ({ affectsConfiguration: (asked: string) => key.startsWith(asked) })];
  tellConfiguration(changed("midfill.steps"));
  await command("restart"); // which comes after what was begun
  const second = client();
  assert.deepEqual(before.notifications, ["workspace/didChangeConfiguration"]);
  tellConfiguration(changed("midfill.serverCommand"));
  while (client() === second) await rest();
  assert.deepEqual(second.notifications, []);
});

test("holes that wait move with the text, in a hidden document too", async () => {
  goTo(a);
  a.selections = [range(0, 2, 3), range(2, 1, 4)];
  await command("addHole");
  goTo(b);
  await rest();
  assert.equal(contexts["midfill.holes"], false);
  tellChanges(a.document, edits);
  tellChanges(a.document, [{ range: range(3, 0, 2), text: "" }]);
  goTo(a);
  await rest();
  assert.equal(contexts["midfill.holes"], true);
  void command("fillHoles");
  while (!client().requests.length) await rest();
  const { ranges } = client().requests[0].params as { ranges: unknown };
  assert.deepEqual(ranges, [{ start: { line: 1, character: 8 }, end: { line: 1, character: 9 } }]);
  assert.equal(contexts["midfill.holes"], false);
  client().requests.shift()!.fail(new Error("the engine did not start"));
  await rest();
  assert.deepEqual([contexts["midfill.holes"], told.splice(0)], [true, ["the engine did not start"]]);
  client().requests.length = 0;
  void command("fillHoles");
  while (!client().requests.length) await rest();
  client().requests.shift()!.answer({});
  await rest();
  assert.equal(contexts["midfill.holes"], false);
});

test("a hole that is widened stays one hole, through a save and an edit elsewhere too", async () => {
  goTo(a);
  a.selections = [range(2, 2, 2)];
  const widen = async () => {
    const done = command("widenHole");
    for (let turn = 0; turn < 3; turn++) await rest();
    const found = [range(2, 1, 3), range(2, 0, 5)].map(({ start, end }) => ({ start: { ...start }, end: { ...end } }));
    client().requests.shift()?.answer({ ranges: found });
    await done;
  };
  const fill = async () => {
    void command("fillHoles");
    while (!client().requests.length) await rest();
    return (client().requests.shift()!.params as { ranges: { start: Position; end: Position }[] }).ranges.map(({ start, end }) => [start.line, start.character, end.character]);
  };
  await widen();
  tellChanges(a.document, []);
  await widen();
  assert.deepEqual(await fill(), [[2, 0, 5]]);
  await widen();
  a.document.version++;
  tellChanges(a.document, edits);
  a.selections = [range(3, 2, 2)];
  await widen();
  assert.equal((await fill()).length, 1);
});

test("until tests pass: only in a trusted workspace, asked once, a dismissed question fills nothing", async () => {
  goTo(a);
  workspace.isTrusted = false;
  await command("fillUntil");
  workspace.isTrusted = true;
  assert.deepEqual([told.splice(0), client().requests.length], [["Midfill: tests are code of this workspace; they run once it is trusted."], 0]);
  for (const [name, entered, asked, sent] of [
    ["fillUntil", undefined, "asked with pytest -q {tests}", undefined], ["fillUntil", "make test", "asked with pytest -q {tests}", "make test"],
    ["fillUntil", "no", undefined, "make test"], ["fillUntilOther", "tox", "asked with pytest -q {tests}", "tox"], ["fillUntil", "no", undefined, "tox"],
  ] as const) {
    window.inputs = entered === undefined ? [] : [entered];
    const done = command(name);
    for (let turn = 0; turn < 5; turn++) await rest();
    if (client().requests[0]?.method === "midfill/tests") client().requests.shift()!.answer({ commands: ["pytest -q {tests}", "pytest -q"] });
    for (let turn = 0; turn < 5; turn++) await rest();
    const { params } = client().requests[0] ?? {};
    assert.deepEqual([told.splice(0), params?.until, params?.what], [asked ? [asked] : [], sent, sent && "body"]);
    client().requests.shift()?.answer({});
    await done;
  }
});
