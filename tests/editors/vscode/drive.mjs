// Drives a real VS Code by keyboard and mouse. Prints "ok NAME" for each scene, and fails at the first that does not hold.
// drive.mjs URL SHOTS: SHOTS gets the screenshots. With SCENES, a pattern of their names, only those are played.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { browser, configure, count, FILL, goTo, has, isPreviewing, lacks, open, page, palette, picture, servers, shot, sleep, start, text, until } from "./window.mjs";

const GUESS = "return '😀";

// Every distinct state of the sharpening decorations, as the page draws them.
async function watchPreviews() {
  await page.evaluate(() => {
    const seen = new Set();
    const look = () => {
      for (const span of document.querySelectorAll(".view-line span span")) {
        const [before, after] = ["::before", "::after"].map((part) => getComputedStyle(span, part).content);
        if (before.includes("▸")) seen.add(before);
        if (after.includes("return")) seen.add(after);
      }
    };
    window.seenPreviews = seen;
    window.previewTimer = setInterval(look, 20);
  });
  return async () => page.evaluate(() => (clearInterval(window.previewTimer), [...window.seenPreviews]));
}

const onDisk = (name) => readFileSync(join(process.env.WORK, name), "utf8");
const isClean = async () => (await page.locator(".tab.active.dirty").count()) === 0;
const BUFFER = "# 😀 # every step guesses another length\ndef second(b):\n    return b + 1\n";
const isOld = async () => (await text()) === BUFFER;

async function save() {
  await page.keyboard.press("Control+s");
  await until("the saved file", isClean);
}

// Starts a fill of buffer.py that writes its guesses into the buffer.
async function startInBuffer() {
  await goTo(3, 8);
  await page.keyboard.press("Control+Alt+b");
  await until("guesses in the buffer", has(GUESS));
}

async function undoUntil(what, condition) {
  for (let count = 0; count < 12; count++) {
    if (await condition()) return;
    await page.keyboard.press("Control+z");
    await sleep(150);
  }
  throw new Error(`no undo brings back ${what}; the editor shows:\n${await text()}`);
}

const scenes = {
  async "the folder is not trusted, and the user's server runs"() {
    await until("Restricted Mode", async () => (await page.textContent(".statusbar")).includes("Restricted Mode"));
    const status = await page.textContent(".statusbar");
    if (!status.includes("Midfill")) throw new Error(`the status bar says ${status}`);
  },
  async "ghost text and Tab"() {
    await open("ghost.py");
    await until("the source", has("def f():"));
    await goTo(1, 9);
    await sleep(4000); // the server has to know the file before the key
    await page.keyboard.press("Enter");
    await until("ghost text", async () => page.evaluate(() => [...document.querySelectorAll("[class*=ghost-text]")].some((span) => span.textContent.includes("return"))));
    await shot("vscode-ghost");
    await page.keyboard.press("Tab");
    await until("the accepted text", has(FILL));
  },
  async "ghost text is the file's own until the engine has judged it"() {
    const gate = join(process.env.WORK, "gate");
    mkdirSync(gate);
    const functions = ["size", "age", "kind"].map((name) => `def ${name}(path):\n    check(path)\n    return ${name}_of(path)\n\n\n`);
    writeFileSync(join(process.env.WORK, "judged.py"), `# gate:${gate}\n${functions.join("")}def owner(path):\n    return owner_of(path)\n`);
    await open("judged.py");
    await until("the source", has("owner_of"));
    await goTo(17, 17);
    await sleep(4000); // the server has to know the file before the key
    await page.keyboard.press("Enter");
    const ghost = (part) => async () => page.evaluate(
      (part) => [...document.querySelectorAll("[class*=ghost-text]")].some((span) => span.textContent.replaceAll("\u00a0", " ").includes(part)), part);
    await until("the proposal", ghost("check(path)"));
    writeFileSync(join(gate, "open"), "");
    await until("the engine's text", ghost("return"));
  },
  async "a body from the light bulb: previews sharpen, accept, one undo restores"() {
    await open("body.py");
    await until("the source", has("return b + 1"));
    await goTo(8, 8);
    const stop = await watchPreviews();
    await until("the code actions", async () => {
      await page.keyboard.press("Control+.");
      await sleep(700);
      const menu = await page.evaluate(() => document.querySelector(".action-widget")?.textContent ?? "");
      if (menu.includes("Fill function body")) return true;
      await page.keyboard.press("Escape");
      return false;
    }, 40000);
    await shot("vscode-actions");
    await until("the action in focus", async () => {
      const focused = await page.textContent(".action-widget .monaco-list-row.focused");
      if (!focused.includes("Fill function body")) await page.keyboard.press("ArrowDown");
      return focused.includes("Fill function body");
    });
    await page.keyboard.press("Enter");
    await until("a preview", async () => page.evaluate(() => window.seenPreviews.size > 1));
    await picture("vscode-preview");
    await until("the fill", has(FILL));
    const seen = await stop();
    if (seen.length < 2) throw new Error(`only ${seen.length} preview states`);
    await until("the lenses", async () => (await page.textContent(".editor-group-container.active")).includes("Discard"));
    await picture("vscode-pending");
    await page.click(".codelens-decoration a:has-text('Accept')");
    await until("no lenses", async () => !(await page.textContent(".editor-group-container.active")).includes("Discard"));
    await page.click(".monaco-editor .view-lines");
    await page.keyboard.press("Control+z");
    await until("the old text", has("return b + 1"));
    if ((await text()).includes(FILL)) throw new Error("one undo does not restore");
    return `${seen.length} preview states`;
  },
  async "keys act on the fill under the cursor, in one file and in two"() {
    await open("two.py");
    await until("the source", has("return b"));
    const both = await text();
    const first = both.replace("return a", FILL);
    for (const [line, filled] of [[2, first], [6, first.replace("return b", FILL)]]) {
      await goTo(line, 8);
      await page.keyboard.press("Control+Alt+b");
      await until("the fill", async () => (await text()) === filled);
      await until("its lenses", async () => (await count("a:has-text('Discard')")) === (line === 2 ? 1 : 2));
    }
    await goTo(2, 8);
    await until("the hint with its keys", async () => page.evaluate(() => [...document.querySelectorAll(".view-line span span")].some(
      (span) => getComputedStyle(span, "::after").content.includes("Alt+Enter\u00a0keep"))));
    await shot("vscode-two");
    await page.keyboard.press("Alt+Enter");
    await until("one lens less", async () => (await count("a:has-text('Discard')")) === 1);
    await open("three.py");
    await until("the source", has("return c"));
    await sleep(400);
    await palette("Midfill: Discard or Cancel");
    await until("the sentence", async () => (await page.textContent("body")).includes("nothing is pending here"));
    await open("two.py");
    await until("its lens", async () => (await count("a:has-text('Discard')")) === 1);
    await sleep(400);
    await page.keyboard.press("Alt+Backspace");
    await until("the second alone put back", async () => (await text()) === first);
    await page.keyboard.press("Control+z");
    await page.keyboard.press("Control+z");
    await undoUntil("the old text", async () => (await text()) === both);
  },
  async "a fill that is undone is no longer pending, redo brings plain text"() {
    await goTo(2, 8);
    await page.keyboard.press("Control+Alt+b");
    await until("the fill", has(FILL));
    await until("the lenses", async () => (await count("a:has-text('Discard')")) === 1);
    await page.keyboard.press("Control+z");
    await until("the old text", has("return a"));
    await until("no lenses", async () => (await count("a:has-text('Discard')")) === 0);
    await page.keyboard.press("Control+y");
    await until("the fill again", has(FILL));
    await sleep(500);
    if (await count("a:has-text('Discard')")) throw new Error("redo made it pending");
    await undoUntil("the old text", has("return a"));
  },
  async "a pending fill keeps its look in a split and after another tab"() {
    await goTo(2, 8);
    await page.keyboard.press("Control+Alt+b");
    await until("the fill", has(FILL));
    const marked = async () => page.evaluate(() => [...document.querySelectorAll(".editor-instance")].map((editor) => editor.querySelectorAll(
      ".view-overlays [class*='ced-']").length > 0));
    await until("the mark", async () => (await marked()).every(Boolean));
    await page.keyboard.press("Control+\\");
    await until("the mark in both", async () => { const seen = await marked(); return seen.length === 2 && seen.every(Boolean); });
    await shot("vscode-split");
    await page.keyboard.press("Control+w");
    await open("three.py");
    await open("two.py");
    await until("the mark again", async () => (await marked()).every(Boolean));
    await sleep(400); // the key is on a moment later
    await page.keyboard.press("Alt+Backspace");
    await until("the old text", has("return a"));
  },
  async "old and new side by side, a hunk put back by itself"() {
    await goTo(2, 8);
    await page.keyboard.press("Control+Alt+b");
    await until("the fill", has(FILL)); // the last scene's lenses may still be there
    await until("its lenses", async () => (await count("a:has-text('Discard')")) === 1);
    await sleep(400);
    await page.keyboard.press("Alt+o");
    await until("both texts", async () => {
      const shown = (await page.textContent(".monaco-diff-editor")).replaceAll("\u00a0", " ");
      return shown.includes("return a") && shown.includes(FILL);
    });
    await sleep(400);
    await picture("vscode-old");
    await goTo(2, 8);
    await sleep(300); // the key is on a moment later
    await page.keyboard.press("Alt+Shift+Backspace");
    await until("no diff", async () => (await page.locator(".monaco-diff-editor").count()) === 0);
    await open("two.py");
    await until("the old text", async () => (await has("return a")()) && !(await has(FILL)()));
  },
  async "a hole is widened and shrunk where it is shown"() {
    await open("holes.py");
    await until("the source", has("second = 2"));
    await goTo(2, 10);
    const isShown = () => page.evaluate(() => [...document.querySelectorAll(".editor-group-container.active .view-overlays div, .editor-group-container.active .view-lines span")]
      .some((each) => getComputedStyle(each).borderTopStyle === "dashed"));
    await page.keyboard.press("Control+Alt+w");
    await until("the hole", isShown);
    await shot("vscode-hole");
    await page.keyboard.press("Control+Alt+Shift+w");
    await until("no hole", async () => !(await isShown()));
    await page.keyboard.press("Control+Alt+w");
    await until("the hole again", isShown);
    await sleep(400); // the key is on a moment later
    await page.keyboard.press("Control+Alt+j");
    await until("the fill", async () => (await text()) === `first = 1\n${FILL}\nthird = 3\n`);
    await undoUntil("the old text", has("second = 2"));
  },
  async "snooze and languages from the status bar"() {
    await open("two.py"); // the menu names its language
    await until("the source", has("return b"));
    // The menu goes by the settings that the window has read, which may be older than the file's: it is closed and opened again.
    const rows = (which) => page.locator(`.quick-input-list .monaco-list-row${which}`).allTextContents();
    const isIn = async (label, which) => (await rows(which)).some((row) => row.trim().startsWith(label));
    const choose = (label) => until(`the choice ${label}`, async () => {
      await page.click(".statusbar-item[id*='midfill']");
      await until("the whole menu", () => isIn("Show Log", ""));
      const isOffered = await isIn(label, "");
      if (isOffered) {
        await page.keyboard.type(label);
        await until("the choice in focus", () => isIn(label, ".focused"));
      }
      await page.keyboard.press(isOffered ? "Enter" : "Escape");
      await page.waitForSelector(".quick-input-widget", { state: "hidden" });
      return isOffered;
    });
    await choose("No ghost text for 5 minutes");
    await until("the sign", async () => (await page.locator(".statusbar .codicon-bell-slash").count()) === 1);
    await choose("Ghost text again");
    await until("no sign", async () => (await page.locator(".statusbar .codicon-bell-slash").count()) === 0);
    await choose("No ghost text in python");
    await until("the setting", async () => JSON.parse(readFileSync(process.env.SETTINGS, "utf8"))["midfill.languages"]?.python === false);
    await choose("Ghost text in python");
    await until("the setting", async () => JSON.parse(readFileSync(process.env.SETTINGS, "utf8"))["midfill.languages"]?.python === true);
  },
  async "a server that dies is one sentence, and the next fill works"() {
    await open("two.py");
    await until("the source", has("return a"));
    await goTo(2, 8);
    await page.keyboard.press("Control+Alt+b");
    await until("a preview", isPreviewing);
    const [pid] = servers();
    process.kill(pid, "SIGKILL");
    await until("the sentence", async () => (await page.textContent("body")).includes("the server ended; it is started again"));
    if ((await page.textContent("body")).includes("Pending response rejected")) throw new Error("the library's own words are shown");
    await until("no preview", async () => !(await isPreviewing()));
    await until("another server", async () => servers().some((other) => other !== pid));
    await until("the fill", async () => {
      if ((await text()).includes(FILL)) return true;
      if (!(await isPreviewing())) {
        await goTo(2, 8);
        await page.keyboard.press("Control+Alt+b");
        await sleep(2500);
      }
      return false;
    }, 60000);
    await undoUntil("the old text", has("return a"));
  },
  async "reroll, next and discard"() {
    await open("body.py");
    await until("the source", has("return b + 1"));
    await goTo(8, 8);
    await page.keyboard.press("Control+Alt+b");
    await until("the fill", has(FILL));
    await sleep(400);
    await page.keyboard.press("Alt+n");
    await until("the next alternative", has("return 1"));
    await sleep(400);
    await page.keyboard.press("Alt+r");
    await until("the reroll", has("+ new"));
    await sleep(400);
    await page.keyboard.press("Alt+Backspace");
    await until("the old text", has("return b + 1"));
  },
  async "a running fill is cancelled, the text stays"() {
    await goTo(8, 8);
    await page.keyboard.press("Control+Alt+b");
    const stop = await watchPreviews();
    await until("a preview", async () => page.evaluate(() => window.seenPreviews.size > 0));
    await page.keyboard.press("Alt+Backspace");
    await until("no preview", async () => page.evaluate(() => {
      const shown = [...document.querySelectorAll(".view-line span span")];
      return !shown.some((span) => getComputedStyle(span, "::before").content.includes("▸"));
    }));
    await stop();
    await sleep(1500);
    if ((await text()).includes(FILL) || !(await text()).includes("return b + 1")) throw new Error("the cancelled fill went in");
  },
  async "two holes jointly, one undo"() {
    await open("holes.py");
    await until("the source", has("second = 2"));
    await goTo(1, 9);
    await page.keyboard.press("Shift+ArrowRight");
    await page.keyboard.press("Control+Alt+h");
    await goTo(2, 10);
    await page.keyboard.press("Shift+ArrowRight");
    await page.keyboard.press("Control+Alt+h");
    await sleep(200);
    await shot("vscode-holes");
    await page.keyboard.press("Control+Alt+j");
    await until("both fills", async () => (await text()).split(FILL).length === 3);
    await page.keyboard.press("Control+z");
    await until("the old text", async () => (await text()).includes("first = 1") && (await text()).includes("second = 2"));
  },
  async "the refactor preview has a tick for each hole"() {
    await open("stubs.py");
    await until("the source", has("def g(): ..."));
    await palette("Midfill: Fill All Stubs and Choose");
    await page.waitForSelector(".refactor-preview, [id*=refactorPreview], .bulk-edit-panel", { timeout: 20000 });
    await until("two ticks", async () => (await page.locator(".bulk-edit-panel .edit-checkbox, .bulk-edit-panel input[type=checkbox]").count()) >= 2);
    await page.click(".bulk-edit-panel .monaco-list-row:has-text('def g') input[type=checkbox]");
    await sleep(300);
    await picture("vscode-refactor-preview");
    await page.click(".bulk-edit-panel .monaco-button:has-text('Apply')");
    await until("the ticked fill alone", async () => (await text()).includes("def f(): ...") && (await text()).split(FILL).length === 2);
  },
  async "in the buffer: guesses are text, one undo restores"() {
    await configure({ "midfill.preview": "buffer", "midfill.steps": 100 });
    await open("buffer.py");
    await until("the source", isOld);
    await startInBuffer();
    const seen = new Set();
    await until("three states", async () => seen.add(await text()).size >= 3);
    await picture("vscode-buffer");
    await until("guesses that look like some", async () => page.evaluate(() =>
      [...document.querySelectorAll(".view-line span span")].some((span) => getComputedStyle(span).opacity < 1)));
    await until("the fill", has(FILL));
    await until("the lenses", async () => (await page.textContent(".editor-group-container.active")).includes("Discard"));
    await until("no lenses", async () => {
      await page.keyboard.press("Alt+Enter"); // means another thing until the answer has come
      await sleep(500);
      return !(await page.textContent(".editor-group-container.active")).includes("Discard");
    });
    if ((await text()) !== BUFFER.replace("return b + 1", FILL)) throw new Error(`the fill is not alone:\n${await text()}`);
    await page.keyboard.press("Control+z");
    await until("the old text after one undo", isOld);
    if (!(await isClean())) throw new Error("there is more than one undo step");
  },
  async "in the buffer: cancel brings the old text back, so does a hidden tab"() {
    await startInBuffer();
    await page.keyboard.press("Alt+Backspace");
    await until("the old text", isOld);
    await sleep(500);
    if (!(await isOld())) throw new Error("the cancelled fill comes back");
    await save();
    await startInBuffer();
    await open("ghost.py");
    await sleep(300);
    await open("buffer.py");
    await until("the old text", async () => !(await has(GUESS)()));
    await until("the fill", has(FILL));
    await undoUntil("the old text", isOld);
    await save();
  },
  async "in the buffer: what is typed elsewhere stays, the fill follows"() {
    await startInBuffer();
    await page.keyboard.press("Control+Home");
    await page.keyboard.type("xyz");
    await until("the old text and what was typed", async () => (await text()) === `xyz${BUFFER}`);
    await until("the fill", async () => (await text()) === `xyz${BUFFER.replace("return b + 1", FILL)}`);
    await undoUntil("the old text", isOld);
    await save();
  },
  async "in the buffer: what is typed into a guess stays, and the fill is given up"() {
    await startInBuffer();
    await goTo(3, 10);
    await page.keyboard.type("typed");
    await until("the message", async () => (await page.textContent("body")).includes("changed meanwhile"));
    await sleep(300);
    if (!(await text()).includes("typed")) throw new Error(`what was typed is gone:\n${await text()}`);
    await undoUntil("the old text", isOld);
    await save();
  },
  async "in the buffer: a save midway writes the old text"() {
    await startInBuffer();
    await page.keyboard.press("Control+s");
    await until("the old text", isOld);
    await sleep(300);
    if (onDisk("buffer.py") !== BUFFER.replaceAll("\n", "\r\n")) throw new Error(`on disk is ${onDisk("buffer.py")}`);
    await until("the fill", has(FILL));
    await undoUntil("the old text", isOld);
  },
  async "in the buffer: an engine that dies midway leaves the old text"() {
    await open("dies.py");
    await until("the source", has("return b"));
    await goTo(2, 8);
    await page.keyboard.press("Control+Alt+b");
    await until("the message", async () => (await page.textContent("body")).includes("a new engine is started"));
    await until("the old text", async () => (await text()) === "def first(b):\n    return b  # the engine dies here\n");
    await configure({ "midfill.preview": "decoration", "midfill.steps": 40 });
  },
  async "the walkthrough"() {
    await palette("Welcome: Open Walkthrough...");
    await sleep(300);
    await page.keyboard.type("Fill gaps");
    await until("the walkthrough in the list", async () => (await page.textContent(".quick-input-list .monaco-list-row.focused")).includes("Fill gaps in code"));
    await page.keyboard.press("Enter");
    await until("its steps", async () => {
      const shown = await page.textContent(".gettingStartedContainer");
      return ["Install the server", "Fill a function body", "Fill several holes jointly"].every((step) => shown.includes(step));
    });
    await shot("vscode-walkthrough");
  },
  async "next edit: what was done twice is shown elsewhere, one key goes there and does it"() {
    await open("again.py");
    await until("the source", has("self.assertEquals(d"));
    await sleep(2000); // the server has to have seen the old text
    for (const line of [2, 3]) {
      await goTo(line, 18);
      await page.keyboard.press("Backspace");
      await sleep(200);
    }
    const places = () => page.evaluate(() => [...document.querySelectorAll(".view-line span span")].filter(
      (span) => getComputedStyle(span, "::after").content.startsWith('"assertEqual')).length);
    await until("two places", async () => (await places()) === 2);
    await picture("vscode-next-edit");
    const cursor = async () => (await page.textContent(".statusbar")).match(/Ln (\d+)/)?.[1];
    await page.keyboard.press("Alt+.");
    await until("the cursor at the next place", async () => (await cursor()) === "4");
    await page.keyboard.press("Alt+.");
    await until("the change there, the cursor behind", async () => (await has("self.assertEqual(c")()) && (await cursor()) === "5");
    await page.keyboard.press("Control+z");
    await until("the old text", has("self.assertEquals(c"));
    await page.keyboard.press("Escape");
    await sleep(500);
    await palette("Midfill: Next Edit: the Last Change Again");
    await until("the sentence", async () => (await page.textContent("body")).includes("fits nowhere else"));
  },
  async "a large body goes only after a question"() {
    await open("large.py");
    await until("the source", has("row_1 = 1"));
    await goTo(3, 8);
    const answer = async (word) => {
      await page.keyboard.press("Control+Alt+b");
      const asked = page.locator(".notification-list-item", { hasText: "this replaces" });
      await until("the question", async () => (await asked.count()) === 1);
      await shot("vscode-question");
      await asked.locator(`.monaco-button:has-text('${word}')`).click();
    };
    await answer("Cancel");
    await sleep(500);
    await until("the text as it was", has("row_1 = 1"));
    await page.click(".editor-group-container.active .monaco-editor .view-lines");
    await goTo(3, 8);
    await answer("Fill");
    await until("the fill", has(FILL));
    await until("the old lines gone", lacks("row_1 = 1"));
  },
  async "the doctor runs in a terminal"() {
    await palette("Midfill: Doctor");
    const shown = async () => (await page.textContent(".xterm-rows", { timeout: 1000 })).replaceAll("\u00a0", " ");
    await until("the end of the report", async () => (await shown()).includes("all is well"), 90000); // its start may have scrolled away
    await page.keyboard.press("Control+j");
  },
  async "an engine that dies midway is a message, and the text stays"() {
    await open("dies.py");
    await until("the source", has("return b"));
    await goTo(2, 8);
    await sleep(500);
    await page.keyboard.press("Control+Alt+b");
    await until("the message", async () => (await page.textContent("body")).includes("a new engine is started"));
    await shot("vscode-engine-died");
    await until("the old text", has("return b  # the engine dies here"));
  },
  async "until tests pass: trusted first, asked once, pending with what it passes"() {
    const RIGHT = "return price - price * rate / 100";
    await configure({ "midfill.model": `writes:${RIGHT}` });
    await open("shop.py");
    await until("the source", has("    ..."));
    await goTo(3, 8);
    await palette("Midfill: Fill Until Tests Pass");
    const warning = page.locator(".notification-list-item", { hasText: "they run once it is trusted" });
    await until("the sentence on trust", async () => (await warning.count()) === 1);
    await warning.locator(".monaco-button:has-text('Manage Workspace Trust')").click();
    await page.locator(".workspace-trust-editor .monaco-button:has-text('Trust')").first().click();
    await until("trust", async () => !(await page.textContent(".statusbar")).includes("Restricted Mode"));
    await open("shop.py");
    await goTo(3, 8);
    await palette("Midfill: Fill Until Tests Pass");
    const input = page.locator(".quick-input-widget input[type='text']");
    await until("the guess", async () => (await input.inputValue()) === ".venv/bin/pytest -q {tests}");
    await page.keyboard.press("Enter");
    await until("the fill", has(RIGHT), 60000);
    await until("what it passes", async () => (await page.textContent(".editor-group-container.active")).includes("passes `.venv/bin/pytest -q test_shop.py`"));
    await picture("vscode-until");
    await sleep(500);
    await page.keyboard.press("Escape");
    await palette("Midfill: Discard or Cancel");
    await until("the stub", has("    ..."));
    await goTo(3, 8);
    await palette("Midfill: Fill Until Tests Pass");
    await until("the fill again", has(RIGHT), 60000);
  },
};

let failed = 0;
try {
  await start();
  for (const [name, scene] of Object.entries(scenes).filter(([name]) => new RegExp(process.env.SCENES ?? "").test(name))) {
    const started = Date.now();
    const more = await scene();
    console.log(`ok ${name} (${((Date.now() - started) / 1000).toFixed(1)} s${more ? `, ${more}` : ""})`);
  }
} catch (error) {
  failed = 1;
  console.log(`FAILED ${error.message}`);
} finally {
  await browser.close();
}
process.exit(failed);
