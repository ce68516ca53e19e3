// Finds the server's command, and installs, repairs, updates and removes the one of the extension's own, where the user wants it.

import { existsSync } from "node:fs";
import { join } from "node:path";
import * as vscode from "vscode";
import { findInstalled, findProgram, findWheel, isOutdated, type Message, refusal, type Run, start } from "./install.ts";

let context: vscode.ExtensionContext;
let log: vscode.LogOutputChannel;
let restart: () => Promise<void>;
let stop: () => Promise<void>;
let running: Promise<void> | undefined; // an installation
let isOffered = false;

const serverFolder = () => join(context.extensionPath, "server");
const store = () => join(context.globalStorageUri.fsPath, "server");

export function watchServer(activated: vscode.ExtensionContext, channel: vscode.LogOutputChannel, again: () => Promise<void>, end: () => Promise<void>): void {
  [context, log, restart, stop] = [activated, channel, again, end];
}

/** The command: the user's setting (machine-scoped), the path and the usual folders, the installed one; undefined where there is none. */
export function findCommand(): string[] | undefined {
  const named = vscode.workspace.getConfiguration("midfill").get<string[]>("serverCommand") ?? [];
  if (named.length) return named;
  const program = findProgram("midfill");
  const own = findInstalled(store());
  return program ? [program, "lsp"] : own === "broken" ? undefined : own;
}

/** Whether a command is the installed one's. */
export const isOwn = (command: string[]): boolean => command[0].startsWith(context.globalStorageUri.fsPath);

/** Offers the one button that installs the server, or repairs it, once at a time; says why where that is not possible. */
export async function offerInstall(): Promise<void> {
  if (running || isOffered) return;
  const why = refusal(serverFolder());
  if (why) return void vscode.window.showWarningMessage(why);
  isOffered = true;
  const [button, sentence] = findInstalled(store())
    ? ["Repair", "Midfill's server is broken, as if the Python that it ran on is gone."]
    : ["Install", "Midfill's server is not installed yet: about 1 GB, mostly torch, for this extension alone, and the default model, 93 MB."];
  const choice = await vscode.window.showWarningMessage(sentence, button, "Use Another");
  isOffered = false;
  if (choice === button) await install();
  if (choice === "Use Another") await vscode.commands.executeCommand("workbench.action.openSettings", "midfill.serverCommand");
}

/** Offers the extension's wheel where an older one is installed. */
export async function offerUpdate(): Promise<void> {
  const wheel = existsSync(serverFolder()) && findWheel(serverFolder());
  if (!wheel || !await isOutdated(store(), wheel)) return;
  const choice = await vscode.window.showInformationMessage("Midfill's extension brings a newer server.", "Update");
  if (choice === "Update") await install();
}

/** Installs the server, updates it or repairs it, with progress and a cancel that leaves nothing; then starts it. */
export function install(): Promise<void> {
  running ??= installNow().finally(() => { running = undefined; });
  return running;
}

async function installNow(): Promise<void> {
  const why = refusal(serverFolder());
  if (why) return void vscode.window.showWarningMessage(why);
  const index = vscode.workspace.getConfiguration("midfill").get<string | null>("torchIndex") ?? null;
  const words = ["install", store(), "--source", findWheel(serverFolder())!, ...(index === null ? [] : ["--torch-index", index])];
  const last = await showRun("Installing Midfill", words);
  if (last.kind !== "done") return tellFailure(last);
  await restart();
  void vscode.window.showInformationMessage(last.message);
}

/** Removes what `install` made, after a question. */
export async function removeEverything(): Promise<void> {
  if (!findInstalled(store())) return void vscode.window.showInformationMessage("Midfill: the extension has installed nothing.");
  const detail = "The server, its packages and the default model that was fetched with them. Settings and other models stay.";
  if (await vscode.window.showWarningMessage("Remove Midfill's server?", { modal: true, detail }, "Remove") !== "Remove") return;
  await stop();
  const last = await showRun("Removing Midfill", ["remove", store()]);
  if (last.kind !== "done") return tellFailure(last);
  void vscode.window.showInformationMessage(`${last.message} Now uninstall the extension, or install the server again.`);
}

function tellFailure({ reason, message }: Message): void {
  if (reason === "cancelled") return void vscode.window.showInformationMessage(`Midfill: ${message}`);
  void vscode.window.showErrorMessage(message, "Show Log", "Try Again").then((choice) => {
    if (choice === "Show Log") log.show();
    if (choice === "Try Again") void install();
  });
}

function showRun(title: string, words: string[]): Thenable<Message> {
  const options = { location: vscode.ProgressLocation.Notification, title, cancellable: words[0] === "install" };
  return vscode.window.withProgress(options, async (progress, token) => {
    let shown = 0;
    const hear = ({ message, percent = 0 }: Message) => {
      progress.report({ message, increment: Math.max(0, percent - shown) });
      shown = Math.max(shown, percent);
    };
    const run: Run = start(serverFolder(), words, hear, (text) => log.info(text));
    token.onCancellationRequested(run.cancel);
    return run.done;
  });
}

export function runDoctor(): void {
  const command = findCommand();
  if (!command) return void offerInstall();
  const own = [...command.slice(0, -1), "midfill_infill", "doctor"];
  const words = isOwn(command) ? own : command.at(-1) === "lsp" ? [...command.slice(0, -1), "doctor"] : [findProgram("midfill") ?? "midfill", "doctor"];
  const terminal = vscode.window.createTerminal("Midfill");
  terminal.show();
  terminal.sendText(words.map((word) => (/^[\w./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" "));
}
