// Which keys the user has for a command: the package's own unless their keybindings.json says otherwise. Changes nothing.

import * as vscode from "vscode";

export interface Binding { key?: string; mac?: string; command: string }

let user: Binding[] = [];
let own: Binding[] = [];

/** Reads them anew; a file that is not there or cannot be read changes nothing. */
export async function readKeys(context: vscode.ExtensionContext): Promise<void> {
  own = context.extension?.packageJSON.contributes.keybindings ?? [];
  if (!context.globalStorageUri) return;
  const file = vscode.Uri.joinPath(context.globalStorageUri, "..", "..", "keybindings.json");
  user = await Promise.resolve(vscode.workspace.fs.readFile(file)).then((data) => parseKeys(new TextDecoder().decode(data)), () => []);
}

/** The keys of a command as a user reads them, empty where they took them away. */
export function keyOf(command: string): string {
  return findKey(command, own, user, process.platform === "darwin");
}

/** The last binding counts; `-command` takes one away. */
export function findKey(command: string, own: Binding[], user: Binding[], isMac: boolean): string {
  const keyIn = (binding?: Binding) => (isMac ? binding?.mac : undefined) ?? binding?.key;
  const mine = user.filter((binding) => binding.command === command).at(-1);
  const gone = user.filter((binding) => binding.command === `-${command}`).map(keyIn);
  const key = keyIn(mine) ?? own.filter((binding) => binding.command === command).map(keyIn).find((key) => !gone.includes(key));
  return (key ?? "").split(" ").map((chord) => chord.split("+").map((name) => name.charAt(0).toUpperCase() + name.slice(1)).join("+")).join(" ");
}

/** A keybindings.json, which may have comments and a last comma. */
export function parseKeys(text: string): Binding[] {
  const bare = text.replace(/("(?:[^"\\]|\\.)*")|\/\/[^\n]*|\/\*[^]*?\*\//g, (_, string) => string ?? "").replace(/,(\s*[\]}])/g, "$1");
  try {
    const bindings: unknown = JSON.parse(bare);
    return Array.isArray(bindings) ? bindings.filter((binding) => typeof binding?.command === "string") : [];
  } catch {
    return [];
  }
}
