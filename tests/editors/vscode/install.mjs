// Installs the server in a real VS Code from an empty home to the first fill: cancels, repairs, updates and removes it.
import { copyFileSync, existsSync, readdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { browser, count, goTo, has, lacks, open, page, palette, shot, start, until } from "./window.mjs";

const { STORE, SERVER, SCENES, WANTED } = process.env;
const WAIT_MS = Number(process.env.TEST_WAIT_MS ?? 120000);
const toast = (words) => page.locator(".notification-toast", { hasText: words });
const told = (words, timeoutMs = WAIT_MS) => until(`the message "${words}"`, async () => await toast(words).count() > 0, timeoutMs);
const press = (words, button) => toast(words).first().locator(".monaco-button", { hasText: button }).click();
const clear = () => palette("Notifications: Clear All Notifications");
const isGone = () => until("an empty folder", async () => !existsSync(STORE));

async function fill() {
  await open("fill.py");
  await goTo(6, 6);
  await page.keyboard.press("Control+Alt+b");
  await until("the fill", async () => await has(WANTED)() && await lacks("    ...")(), WAIT_MS);
  await shot("install-filled");
  await until("what is pending", async () => await count("a") > 0);
  await page.keyboard.press("Alt+Backspace");
  await until("the old text", has("    ..."));
}

/** The extension brings this wheel instead. */
function bring(wheel) {
  for (const name of readdirSync(SERVER).filter((name) => name.endsWith(".whl"))) rmSync(join(SERVER, name));
  copyFileSync(wheel, join(SERVER, basename(wheel)));
}

const scenes = {
  async offer() {
    await start();
    await told("is not installed yet");
    await shot("vscode-install-offer");
  },
  async cancel() {
    await press("is not installed yet", "Install");
    await told("making an environment");
    await press("Installing Midfill", "Cancel");
    await told("Cancelled; nothing was left behind");
    await isGone();
    await clear();
  },
  async button() {
    await press("is not installed yet", "Install");
    await told(/installing torch: [1-9]\d* MB/);
    await shot("vscode-install-progress");
    await told("Midfill is installed.");
    await clear();
  },
  async install() {
    await palette("Midfill: Install, Repair or Update the Server");
    await told("Midfill is installed.");
    await clear();
  },
  fill,
  async repair() {
    const python = join(dirname(STORE), "server", readlinkSync(join(STORE, "current")), "bin", "python");
    rmSync(python);
    symlinkSync("/nowhere/python3", python);
    await start();
    await told("server is broken");
    await press("server is broken", "Repair");
    await told("Midfill is installed.");
    await clear();
  },
  async update() {
    bring(process.env.OTHER);
    await start();
    await told("brings a newer server");
    await press("brings a newer server", "Update");
    await told("Midfill is installed.");
    await clear();
    await start();
    await page.waitForTimeout(3000);
    if (await toast("brings a newer server").count()) throw new Error("the update is offered again");
  },
  async remove() {
    await palette("Midfill: Remove Everything");
    await page.locator(".monaco-dialog-box .monaco-button", { hasText: "Remove" }).click();
    await told("Midfill is removed.");
    await isGone();
    await clear();
  },
  async offline() {
    bring(process.env.NEEDS);
    await palette("Midfill: Install, Repair or Update the Server");
    await told("No package index can be reached: connect to the internet, and install again.");
    await shot("install-offline");
    await isGone();
  },
};

try {
  for (const name of SCENES.split(" ")) {
    await scenes[name]();
    console.log(`ok ${name}`);
  }
} catch (error) {
  await shot("failed").catch(() => {});
  throw error;
} finally {
  await browser.close();
}
