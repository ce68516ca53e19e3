// A real VS Code in a browser: what is done to it, and what it shows. Knows no scene.
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { chromium } = createRequire(join(process.env.CODE_SERVER, "x.js"))("playwright-core");
const [url, shots] = process.argv.slice(2);
export const FILL = "return 'ß😀'";
mkdirSync(shots, { recursive: true });

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
export const page = await browser.newPage({ viewport: { width: 1100, height: 620 } });

const devtools = await page.context().newCDPSession(page);

/** A key that playwright's American keyboard lacks, as a German one sends it: `keyboard.type` inserts it like an input method. */
export async function typeKey(text) {
  for (const type of ["keyDown", "keyUp"]) await devtools.send("Input.dispatchKeyEvent", { type, key: text, ...(type === "keyDown" && { text }) });
}

export const shot = (name, style) => page.screenshot({ path: join(shots, `${name}.png`), style, timeout: 120000 });
/** A shot for the docs: what an earlier scene said is not in it. */
export const picture = (name) => shot(name, ".notifications-toasts { display: none !important; }");
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export async function until(what, condition, timeoutMs = 30000) {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const found = await condition().catch(() => false);
    if (found) return found;
    if (Date.now() > end) {
      await shot("failed");
      throw new Error(`waited in vain for ${what}; the editor shows:\n${await text()}`);
    }
    await sleep(25);
  }
}

export async function text() {
  return page.evaluate(() => {
    const editor = document.querySelector(".editor-group-container.active .monaco-editor") ?? document;
    const lines = [...editor.querySelectorAll(".view-lines > .view-line")];
    lines.sort((one, other) => parseFloat(one.style.top) - parseFloat(other.style.top));
    return lines.map((line) => line.textContent.replaceAll("\u00a0", " ")).join("\n");
  });
}

export const has = (part) => async () => (await text()).includes(part);
export const lacks = (part) => async () => !(await text()).includes(part);

export async function palette(command) {
  await page.keyboard.press("F1");
  await page.waitForSelector(".quick-input-widget:not([style*='display: none']) input");
  await page.keyboard.type(command);
  await until(`the command ${command}`, async () => (await page.textContent(".quick-input-list .monaco-list-row.focused")).includes(command.replace(/^.*: /, "")));
  await page.keyboard.press("Enter");
}

export async function open(name) {
  const isListed = async () => (await page.textContent(".quick-input-list .monaco-list-row.focused", { timeout: 1000 })).includes(name);
  await until(`the list with ${name}`, async () => { // it may close again at once, or lack a file that was just made
    await page.keyboard.press("Control+p");
    await page.waitForSelector(".quick-input-widget input", { timeout: 5000 });
    await page.keyboard.type(name);
    return until(`the file ${name}`, isListed, 10000).catch(() => page.keyboard.press("Escape"));
  }, 60000);
  await page.keyboard.press("Enter");
  await until(`the editor of ${name}`, async () => (await page.textContent(".editor-group-container.active .tab.active")).includes(name));
}

export const count = (what) => page.locator(`.editor-group-container.active .codelens-decoration ${what}`).count();
export const isPreviewing = async () => page.evaluate(() => [...document.querySelectorAll(".view-line span span")].some(
  (span) => getComputedStyle(span, "::before").content.includes("▸")));

// The language servers of this run: other runs on the machine have another home.
export function servers() {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).filter((name) => {
    try {
      return readFileSync(`/proc/${name}/cmdline`, "utf8").includes("scripted_server.py")
        && readFileSync(`/proc/${name}/environ`, "utf8").split("\0").includes(`HOME=${process.env.HOME}`);
    } catch {
      return false;
    }
  }).map(Number);
}

/** Goes to a place, both counted from 1. */
export async function goTo(line, column) {
  await page.keyboard.press("Control+g");
  await page.waitForSelector(".quick-input-widget input");
  await page.keyboard.type(`${line}:${column}`);
  await until("the place in the list", async () => {
    const offered = await page.textContent(".quick-input-list .monaco-list-row");
    return String(offered.match(/\d+/g)) === `${line},${column}`;
  });
  await page.keyboard.press("Enter");
  await page.waitForSelector(".quick-input-widget", { state: "hidden" });
}

export async function start() {
  await page.goto(url, { timeout: 90000 });
  await page.waitForSelector(".monaco-workbench", { timeout: 150000 });
  await until("the extension", async () => {
    const status = await page.textContent(".statusbar");
    return status.includes("Midfill") && !status.includes("Midfill starts");
  }, 150000);
}

// Changes the user's settings. A window that is loaded anew has them.
export async function configure(changes) {
  const settings = JSON.parse(readFileSync(process.env.SETTINGS, "utf8"));
  writeFileSync(`${process.env.SETTINGS}.new`, JSON.stringify({ ...settings, ...changes }));
  renameSync(`${process.env.SETTINGS}.new`, process.env.SETTINGS); // whoever reads now finds all of it
  await start();
}
