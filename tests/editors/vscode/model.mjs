// Random fills, moves, tabs, splits, undos, keeps, discards, rerolls, kills and ends of running fills over two files of a real VS Code,
// beside a plain model that knows every text and what must be pending where. model.mjs URL SHOTS: SEQUENCES of STEPS operations each,
// from SEED; prints what went wrong. A file that no group shows is compared when it is shown again.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { join } from "node:path";
import { browser, configure, FILL, goTo, open, page, palette, servers, shot, sleep, typeKey, until } from "./window.mjs";

const GUESS = "return '😀ß' or x";
const NEW = /^ {4}.*\+ new$/;
const [NUM_BODIES, NUM_FILES] = [3, 2];
const [SEQUENCES, STEPS, SEED] = [["SEQUENCES", 2], ["STEPS", 30], ["SEED", 1]].map(([name, usual]) => Number(process.env[name] ?? usual));
const SETTLED_MS = 250; // what comes later than the state that is waited for would be wrong
const gate = mkdtempSync(join(tmpdir(), "gate"));
const openGate = () => writeFileSync(join(gate, "open"), "");
let known = []; // the model of each file
let groups = []; // what each group shows
let active = 0;
let current;
let lastId = 0;
let state = SEED;

function random() {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}

const pick = (list) => list[Math.floor(random() * list.length)];
const press = (key) => page.keyboard.press(key);

/** What each group shows: its file, its text, rows with the hint of a pending fill, rows with a preview, the number of lenses. */
function look() {
  return page.evaluate(() => [...document.querySelectorAll(".editor-group-container")].map((group) => {
    const lines = [...group.querySelector(".monaco-editor").querySelectorAll(".view-lines > .view-line")];
    lines.sort((one, other) => parseFloat(one.style.top) - parseFloat(other.style.top));
    const rowsWith = (part, words) => lines.flatMap((line, row) =>
      [...line.querySelectorAll("span span")].some((span) => getComputedStyle(span, part).content.replaceAll("\u00a0", " ").includes(words)) ? [row] : []);
    return {
      isActive: group.classList.contains("active"),
      name: group.querySelector(".tab.active .label-name").textContent,
      lines: lines.map((line) => line.textContent.replaceAll("\u00a0", " ").trimEnd()),
      pending: rowsWith("::after", "Alt+Enter keep"),
      previews: rowsWith("::before", "▸"),
      numLenses: [...group.querySelectorAll(".codelens-decoration a")].filter((link) => link.textContent === "Discard").length,
    };
  }));
}

const textOf = (file) => file.texts[file.now].lines;
const rowOf = (lines, body) => lines.indexOf(`def f${body}(a):`) + 1;
const row = (body) => rowOf(textOf(current), body);
const lineOf = (body) => textOf(current)[row(body)];
const ascending = (numbers) => [...numbers].sort((one, other) => one - other);
const placesOf = (file) => ascending([...file.pending.values()].map((fill) => rowOf(textOf(file), fill.body)));

function expected(previews = []) {
  return groups.map((file, index) => ({
    isActive: index === active, name: file.name, lines: textOf(file), pending: placesOf(file),
    previews: file === current ? ascending(previews) : [], numLenses: file.pending.size,
  }));
}

async function settle(previews) {
  let seen;
  const isAsTold = async () => isDeepStrictEqual(seen = await look(), expected(previews));
  await until("the state", isAsTold, 60000).catch(() => {});
  await sleep(SETTLED_MS);
  if (!(await isAsTold())) throw new Error(`it shows\n${JSON.stringify(seen)}\nwanted\n${JSON.stringify(expected(previews))}`);
}

function add(at, line, maker) {
  const lines = [...textOf(current)];
  if (lines[at] === line) return;
  lines[at] = line;
  current.texts = [...current.texts.slice(0, current.now + 1), { lines, maker }];
  current.now++;
}

function put(body, line, held, others = [], id = lastId + 1) {
  lastId = Math.max(lastId, id);
  current.pending.set(id, { body, held, others });
  add(row(body), line, id);
}

/** The fill that a key at a body must act on: the one there, else the file's latest. */
function meant(body) {
  const ids = ascending(current.pending.keys());
  return ids.filter((id) => current.pending.get(id).body === body).at(-1) ?? ids.at(-1);
}

function take(body) {
  const id = meant(body);
  const fill = current.pending.get(id);
  current.pending.delete(id);
  return fill;
}

/** Whether a fill of the body would change it, and none waits there. */
const isFree = (body) => ![...current.pending.values()].some((fill) => fill.body === body)
  && !lineOf(body).includes(FILL) && !lineOf(body).includes(GUESS);

const goToBody = (body) => goTo(row(body) + 1, 8);

function decide(key, putsBack) {
  return async (body) => {
    if (!current.pending.size) return;
    const fill = take(body);
    if (putsBack) add(row(fill.body), fill.held);
    await press(key);
  };
}

/** Two fills run; the one at `body` is ended by a key, the other one goes on. */
function endOneOfTwo(key, isFinished) {
  return async (body) => {
    const free = [1, 2, 3].filter((other) => other !== body && isFree(other));
    if (!isFree(body) || !free.length) return;
    const other = pick(free);
    const ids = {};
    for (const file of readdirSync(gate)) rmSync(join(gate, file));
    for (const each of random() < 0.5 ? [body, other] : [other, body]) {
      ids[each] = ++lastId;
      await goToBody(each);
      await press("Control+Alt+b");
    }
    await settle([row(body), row(other)]);
    await goToBody(body);
    await press(key);
    if (isFinished) {
      const before = lineOf(body);
      put(body, `    ${GUESS}`, before, [], ids[body]);
      for (let step = 1; step < 8 && (await look())[active].lines[row(body)] === before; step++) {
        writeFileSync(join(gate, String(step)), "");
        await sleep(400); // by the next step at the latest it has heard the key
      }
    }
    await settle([row(other)]);
    put(other, `    ${FILL}`, lineOf(other), ["return 1", "return 2", FILL], ids[other]);
    openGate();
  };
}

/** Each is at its place, tells the model what must come of it, and does it. */
const operations = {
  async fill(body) {
    if (!isFree(body)) return;
    put(body, `    ${FILL}`, lineOf(body), ["return 1", "return 2", FILL]);
    await press("Control+Alt+b");
  },
  runningAccept: endOneOfTwo("Alt+Enter", true),
  runningDiscard: endOneOfTwo("Alt+Backspace", false),
  accept: decide("Alt+Enter", false),
  acceptHunk: decide("Alt+Shift+Enter", false),
  discard: decide("Alt+Backspace", true),
  discardHunk: decide("Alt+Shift+Backspace", true),
  async reroll(body) {
    if (!current.pending.size) return;
    const fill = take(body);
    const before = lineOf(fill.body);
    await press("Alt+r");
    const line = await until("the reroll", async () => {
      const found = (await look())[active].lines[row(fill.body)];
      return found !== before && found;
    });
    if (!NEW.test(line)) throw new Error(`the reroll says ${line}`);
    put(fill.body, line, fill.held);
  },
  async next(body) {
    if (!current.pending.get(meant(body))?.others.length) return;
    const { body: at, held, others: [first, ...others] } = take(body);
    put(at, `    ${first}`, held, [...others, first]);
    await press("Alt+n");
  },
  async undo() {
    if (!current.now) return;
    current.pending.delete(current.texts[current.now].maker);
    current.now--;
    await press("Control+z");
  },
  async redo() {
    if (current.now === current.texts.length - 1) return;
    current.now++;
    await press("Control+y");
  },
  async type(body) {
    const line = lineOf(body);
    if (random() < 0.5 && line.startsWith("    ret")) {
      add(row(body), `${line.slice(0, 7)}ü${line.slice(7)}`);
    } else {
      await goTo(1, 1);
      await press("End");
      add(0, `${textOf(current)[0]}ü`);
    }
    await typeKey("ü");
  },
  async tab() {
    current = groups[active] = pick(known);
    await open(current.name);
  },
  async split() {
    if (groups.length === 1) {
      groups.push(current);
      active = 1;
      await press("Control+\\");
    } else {
      await joinGroups();
    }
  },
};

// An edit that is not the server's ends the fills whose lines hold again what they held.
for (const name of ["undo", "redo", "type"]) {
  const run = operations[name];
  operations[name] = async (body) => {
    const before = textOf(current);
    await run(body);
    for (const [id, fill] of current.pending) {
      const line = lineOf(fill.body);
      if (line === fill.held && line !== before[row(fill.body)]) current.pending.delete(id);
    }
  };
}

async function joinGroups() {
  [groups, active] = [[current], 0];
  await palette("View: Join All Editor Groups");
}

async function kill() {
  const [dead] = servers();
  process.kill(dead, "SIGKILL");
  for (const file of known) file.pending.clear();
  lastId = 0;
  await until("another server", async () => servers().some((other) => other !== dead));
}

async function startSequence(number) {
  known = Array.from({ length: NUM_FILES }, (_, index) => {
    const lines = [`# gate:${gate} 😀`];
    for (let body = 1; body <= NUM_BODIES; body++) lines.push(`def f${body}(a):`, `    return ${body}  # ß`, "", "");
    const name = `sequence${number}${"ab"[index]}.py`;
    writeFileSync(join(process.env.WORK, name), lines.join("\n"));
    return { name, texts: [{ lines }], now: 0, pending: new Map() };
  });
  current = known.at(-1);
  [groups, active] = [[current], 0];
  for (const file of known) await open(file.name);
  await settle();
}

/** Leaves nothing open for the next sequence. */
async function endSequence() {
  if (groups.length > 1) await joinGroups();
  await palette("File: Save All Files");
  await until("saved files", async () => (await page.locator(".tab.dirty").count()) === 0);
  await palette("View: Close All Editors");
  await until("no tab", async () => (await page.locator(".tab").count()) === 0);
}

const names = [...Object.keys(operations), ..."fill fill fill fill accept discard next undo undo tab runningDiscard runningAccept".split(" ")].sort();
let [done, wrong] = [0, 0];

async function runSequence(number) {
  const trace = [];
  try {
    await startSequence(number);
    const killed = number % 2 ? -1 : Math.floor(random() * STEPS);
    for (let step = 0; step < STEPS; step++) {
      const [name, body] = step === killed ? ["kill", 0] : [pick(names), 1 + Math.floor(random() * NUM_BODIES)];
      trace.push(`${name}${body}`);
      if (name === "kill") await kill();
      else {
        await goToBody(body);
        await operations[name](body);
      }
      await settle();
      done++;
    }
    await endSequence();
  } catch (error) {
    wrong++;
    console.log(`WRONG in sequence ${number} after ${trace.join(" ")}: ${error.message}`);
    await shot(`wrong${number}`);
    throw error;
  }
}

try {
  openGate();
  await configure({
    "midfill.steps": 8, "midfill.trigger": "manual", "editor.quickSuggestions": { other: "off", comments: "off", strings: "off" },
    "editor.suggestOnTriggerCharacters": false, "editor.wordBasedSuggestions": "off",
  });
  for (let number = 1; number <= SEQUENCES; number++) await runSequence(number);
} finally {
  console.log(`${done} operations, ${wrong} wrong`);
  rmSync(gate, { recursive: true });
  await browser.close();
}
