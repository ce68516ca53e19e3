// Finds the server's command, and offers to install it where there is none. Starts nothing unasked.

import { accessSync, constants } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import * as vscode from "vscode";

const INSTALL = 'pipx install "midfill[engine]"';

/** The command: the user's setting (machine-scoped), the path, the usual folders; undefined where there is none. */
export function findCommand(): string[] | undefined {
  const named = vscode.workspace.getConfiguration("midfill").get<string[]>("serverCommand") ?? [];
  if (named.length) return named;
  const found = findProgram();
  return found ? [found, "lsp"] : undefined;
}

function findProgram(): string | undefined {
  const folders = [...(process.env.PATH ?? "").split(delimiter), join(homedir(), ".local", "bin")];
  return folders.map((folder) => join(folder, "midfill")).find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Says what would be installed and how; runs it in a terminal where the user can watch, if they want. */
export async function offerInstall(): Promise<void> {
  const choice = await vscode.window.showWarningMessage(
    `Midfill's server is not installed. "${INSTALL}" installs the command midfill and its engine (torch, about 1 GB) for you alone.`,
    "Install in a Terminal", "Set the Command",
  );
  if (choice === "Install in a Terminal") runInTerminal(INSTALL);
  if (choice === "Set the Command") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "midfill.serverCommand");
  }
}

export function runDoctor(): void {
  const command = findCommand();
  if (!command) return void offerInstall();
  const words = command.at(-1) === "lsp" ? [...command.slice(0, -1), "doctor"] : [findProgram() ?? "midfill", "doctor"];
  runInTerminal(words.map((word) => (/^[\w./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" "));
}

function runInTerminal(line: string): void {
  const terminal = vscode.window.createTerminal("Midfill");
  terminal.show();
  terminal.sendText(line);
}
