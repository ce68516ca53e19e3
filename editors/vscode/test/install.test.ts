// How the installer is started, heard and cancelled, and what is known of what it made. Needs no window.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, test } from "node:test";
import { findInstalled, findWheel, isOutdated, type Message, refusal, searchPath, start } from "../src/install.ts";

let folder: string;
const path = process.env.PATH!;
const say = (kind: string, message: string, more = "") => `echo '{"kind": "${kind}", "message": "${message}"${more}}'`;

/** A program of the path that does this. */
function make(name: string, ...lines: string[]): void {
  writeFileSync(join(folder, "bin", name), `#!/bin/sh\n${lines.join("\n")}\n`);
  chmodSync(join(folder, "bin", name), 0o755);
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "midfill "));
  mkdirSync(join(folder, "bin"));
  process.env.PATH = `${join(folder, "bin")}:${path}`;
  for (const name of ["python3", "python", "uv"]) make(name, "exit 1");
  writeFileSync(join(folder, "install.json"), '{"darwin": "brew", "win32": "wsl", "ours": "take ours", "other": "any"}');
});

test("progress is heard as it comes, the last message is the answer, the rest is the log", async () => {
  make("python3", say("progress", "one", ', "percent": 5'), "echo said >&2", 'printf \'{"kind": "progress", "mess\'', "sleep 0.05",
    'printf \'age": "two", "percent": 50}\\n\'', 'echo "$@" > "$(dirname "$0")/words"', say("done", "here"));
  const [heard, logged]: [Message[], string[]] = [[], []];
  const last = await start(folder, ["install", "a b", "--source", "c"], (one) => heard.push(one), (text) => logged.push(text)).done;
  assert.deepEqual([heard.map((one) => one.message), last, logged], [["one", "two"], { kind: "done", message: "here" }, ["said"]]);
  assert.equal(readFileSync(join(folder, "bin", "words"), "utf8"), `${join(folder, "install.py")} install a b --source c --cancel-on-eof\n`);
});

test("a program that says nothing is none that runs it; where there is no other, a sentence says what to do", async () => {
  make("uv", say("failed", "no", ', "reason": "offline"'));
  assert.equal((await start(folder, ["install"], () => {}, () => {}).done).reason, "offline");
  make("uv", "exit 1");
  make("ours");
  assert.deepEqual(await start(folder, ["install"], () => {}, () => {}).done, { kind: "failed", reason: "no_python", message: "take ours" });
});

test("an installer that dies is no success", async () => {
  make("python3", say("progress", "one", ', "percent": 5'), "kill -9 $$");
  assert.equal((await start(folder, ["install"], () => {}, () => {}).done).reason, "ended");
});

test("a cancel is the end of its stdin", async () => {
  make("python3", say("progress", "one", ', "percent": 5'), "cat >/dev/null", say("failed", "gone", ', "reason": "cancelled"'));
  const run = start(folder, ["install"], () => run.cancel(), () => {});
  assert.deepEqual(await run.done, { kind: "failed", message: "gone", reason: "cancelled" });
});

test("what is installed: nothing, a command, something broken, something older", async () => {
  const store = join(folder, "store");
  assert.equal(findInstalled(store), undefined);
  mkdirSync(join(store, "env-1", "bin"), { recursive: true });
  symlinkSync("env-1", join(store, "current"));
  assert.equal(findInstalled(store), "broken");
  const python = join(store, "env-1", "bin", "python");
  symlinkSync(process.execPath, python);
  assert.deepEqual(findInstalled(store), [python, "-P", "-m", "midfill_lsp"]);
  rmSync(python);
  symlinkSync("/nowhere/python3", python);
  assert.equal(findInstalled(store), "broken");
  const wheel = join(folder, "midfill-0.1-py3-none-any.whl");
  writeFileSync(wheel, "new");
  assert.equal(findWheel(folder), wheel);
  const record = (text: string) => writeFileSync(join(store, "env-1", "midfill.json"), JSON.stringify({ source: createHash("sha256").update(text).digest("hex") }));
  assert.equal(await isOutdated(store, wheel), false);
  record("old");
  assert.equal(await isOutdated(store, wheel), true);
  record("new");
  assert.equal(await isOutdated(store, wheel), false);
  rmSync(join(store, "env-1"), { recursive: true });
  assert.equal(findInstalled(store), "broken");
});

test("where nothing can be installed, one sentence says why", () => {
  assert.equal(refusal(folder, "win32"), "wsl");
  assert.equal(refusal(folder, "linux"), undefined);
  assert.equal(refusal(folder, "darwin", "/nowhere"), "brew");
  assert.equal(refusal(folder, "linux", "/nowhere"), "any");
  assert.match(refusal(join(folder, "bin"))!, /brings no server/);
  make("ours");
  for (const name of ["python3", "python", "uv"]) rmSync(join(folder, "bin", name));
  assert.equal(refusal(folder, "linux", join(folder, "bin")), "take ours");
  assert.ok(searchPath("/a:/b").startsWith("/a:/b:") && existsSync(folder));
});

test("the sentences that ship", () => {
  const ways = JSON.parse(readFileSync(process.env.SENTENCES!, "utf8")) as Record<string, string>;
  assert.match(ways.win32, /WSL/);
  for (const [name, way] of Object.entries(ways)) assert.ok(name === "win32" || /Python 3\.11/.test(way));
});
