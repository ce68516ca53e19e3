// What stood in a document before its pending fills, beside what stands there now: VS Code's diff. Asks the server nothing.

import * as vscode from "vscode";
import { putBack } from "./layout.ts";
import { fillsOf } from "./pending.ts";

const SCHEME = "midfill-old";
const changed = new vscode.EventEmitter<vscode.Uri>();

export function registerOld(): vscode.Disposable {
  return vscode.workspace.registerTextDocumentContentProvider(SCHEME, { onDidChange: changed.event, provideTextDocumentContent: (uri) => oldText(uri.query) });
}

const oldUri = (uri: vscode.Uri) => vscode.Uri.from({ scheme: SCHEME, path: uri.path, query: uri.toString() });

function oldText(uri: string): string {
  const document = vscode.workspace.textDocuments.find((document) => document.uri.toString() === uri);
  return putBack(document?.getText() ?? "", fillsOf(uri));
}

function tabsOf(uri: string): vscode.Tab[] {
  const isOld = ({ input }: vscode.Tab) =>
    input instanceof vscode.TabInputTextDiff && input.original.scheme === SCHEME && input.original.query === uri;
  return vscode.window.tabGroups.all.flatMap((group) => group.tabs).filter(isOld);
}

/** Opens the diff of the active editor's document, or closes it. */
export async function toggleOld(): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (!document) return;
  const uri = vscode.Uri.parse(document.uri.scheme === SCHEME ? document.uri.query : document.uri.toString());
  const open = tabsOf(uri.toString());
  if (open.length) return void vscode.window.tabGroups.close(open);
  if (!fillsOf(uri.toString()).length) return void vscode.window.showInformationMessage("Midfill: nothing is pending here.");
  await vscode.commands.executeCommand("vscode.diff", oldUri(uri), uri, `${uri.path.split("/").at(-1)}: before and after the fill`, { preview: true });
}

/** What is pending has changed: the diff shows it, and goes with the last fill. */
export function refreshOld(uri: string): void {
  const open = tabsOf(uri);
  if (!open.length) return;
  if (!fillsOf(uri).length) void vscode.window.tabGroups.close(open);
  else changed.fire(oldUri(vscode.Uri.parse(uri)));
}
