// Which document a command acts on, and what is remembered of fills and holes. Needs no server and no window.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { activate } from "../src/extension.ts";
import { LanguageClient } from "./fake-client.ts";
import { close, contexts, FakeDocument, FakeEditor, goTo, Position, Range, registered, tellChanges, tellConfiguration, told } from "./fake-vscode.ts";

const [a, b] = ["file:///a.py", "file:///b.py"].map((uri) => new FakeEditor(new FakeDocument("one\ntwo\nthree\n", uri)));
const rest = () => new Promise((done) => setImmediate(done));
const client = () => LanguageClient.last;
const range = (line: number, from: number, to: number) => new Range(new Position(line, from), new Position(line, to));
const command = (name: string) => registered[`midfill.${name}`]();
const edits = [
  { range: new Range(new Position(0, 1), new Position(0, 1)), text: "\n# typed" },
];

await activate({ subscriptions: [] } as never);

beforeEach(async () => {
  [a, b].forEach(({ document }) => close(document));
  LanguageClient.startsAreRefused = false;
  await command("restart");
  told.length = 0;
});

/** A fill of the editor's document that is pending as `id`. */
async function fillIn(editor: FakeEditor, id: number): Promise<void> {
  goTo(editor);
  editor.selections = [range(0, 0, 0)];
  const done = command("fillBody");
  while (!client().requests.length) await rest();
  client().requests.pop()!.answer({ id, version: 1, newErrors: 0, holes: [{ range: range(0, 0, 1), text: "x", tokens: [], confidence: [] }] });
  await done;
  assert.equal(contexts["midfill.pending"], true);
}

test("a fill is pending in its document alone", async () => {
  await fillIn(a, 7);
  goTo(b);
  await rest();
  assert.equal(contexts["midfill.pending"], false);
  for (const name of ["discardFill", "acceptFill", "rerollFill", "shorterFill", "longerFill", "nextFill"]) {
    told.length = 0;
    await command(name);
    assert.deepEqual(told, ["Midfill: nothing is pending here."]);
  }
  assert.deepEqual(client().requests, []);
  goTo(a);
  await rest();
  assert.equal(contexts["midfill.pending"], true);
  void command("discardFill");
  while (!client().requests.length) await rest();
  assert.deepEqual(client().requests[0].params, { command: "midfill.discard", arguments: [{ id: 7 }] });
});

test("a fill that the server let go is forgotten", async () => {
  await fillIn(a, 7);
  const done = command("acceptFill");
  while (!client().requests.length) await rest();
  client().requests.pop()!.fail(Object.assign(new Error("no longer pending"), { code: -32803, data: { pending: false } }));
  await done;
  assert.deepEqual([told, contexts["midfill.pending"]], [["no longer pending"], false]);
});

test("fills are forgotten with their server, which may be started again after it failed", async () => {
  await fillIn(a, 1);
  await command("restart");
  await rest();
  assert.equal(contexts["midfill.pending"], false);
  await command("discardFill");
  assert.deepEqual(client().requests, []);
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
});
