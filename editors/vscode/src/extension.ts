// Commands, keys and the status bar. The server makes the fills and puts them in; view.ts draws.

import * as vscode from "vscode";
import { LanguageClient, type Middleware, State, type StaticFeature, TextEdit } from "vscode-languageclient/node";
import { type Animation, findAnimation, openAnimation, stopAnimations, watchDocuments } from "./buffer.ts";
import { type HoleFill, type PreviewHole, type Range, shift } from "./layout.ts";
import { findCommand, offerInstall, runDoctor } from "./server.ts";
import { showHoles, showPending, showPreview, toRange } from "./view.ts";

interface FillResult { id?: number; version?: number; holes: HoleFill[]; newErrors: number }
interface Status { kind: "Normal" | "Warning" | "Error" | "Inactive"; busy: boolean; message: string }
type Arguments = Record<string, unknown>;

let client: LanguageClient | undefined;
let starts = Promise.resolve(); // one after the other
let log: vscode.LogOutputChannel;
let item: vscode.StatusBarItem;
let lastToken = 0;
const running = new Map<number, { uri: string; cancel: vscode.CancellationTokenSource; animation?: Animation }>();
const pending = new Map<string, number>(); // document -> pending fill
const holes = new Map<string, vscode.Range[]>(); // document -> holes that wait

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  log = vscode.window.createOutputChannel("Midfill", { log: true });
  item = vscode.window.createStatusBarItem("midfill.status", vscode.StatusBarAlignment.Right, 100);
  item.name = "Midfill";
  item.command = "midfill.showLog";
  showStatus({ kind: "Inactive", busy: false, message: "Midfill's server has not been started." });
  item.show();
  context.subscriptions.push(log, item, watchDocuments(), vscode.workspace.onDidChangeConfiguration(takeConfiguration),
    vscode.workspace.onDidCloseTextDocument((document) => {
      holes.delete(document.uri.toString());
      forget([document.uri.toString()]);
    }),
    vscode.window.onDidChangeActiveTextEditor((editor) => {
      if (editor) showHoles(editor, holes.get(editor.document.uri.toString()) ?? []);
      void setContexts();
    }),
    vscode.workspace.onDidChangeTextDocument(carryHoles));
  const commands: Record<string, () => unknown> = {
    fillBody: () => fillHere("body"),
    fillSelection: () => fillHere("selection"),
    fillHere: () => fillHere("hole"),
    fillStubs: () => fillHere("stubs"),
    fillStubsOneByOne: () => fillHere("stubs", { confirm: true }),
    addHole,
    fillHoles,
    finishFill: () => run("finish"),
    acceptFill: () => run("accept"),
    discardFill: () => cancelRunning() || run("discard"),
    rerollFill: () => run("reroll"),
    shorterFill: () => run("reroll", { length: "shorter" }),
    longerFill: () => run("reroll", { length: "longer" }),
    nextFill: () => run("next"),
    doctor: runDoctor,
    showLog: () => log.show(),
    restart,
  };
  for (const [name, command] of Object.entries(commands)) {
    context.subscriptions.push(vscode.commands.registerCommand(`midfill.${name}`, command));
  }
  await restart();
}

export async function deactivate(): Promise<void> {
  await stopAnimations();
  await client?.stop();
}

function restart(): Promise<void> {
  starts = starts.then(start);
  return starts;
}

async function start(): Promise<void> {
  await client?.dispose().catch(() => {}); // one that did not start cannot be stopped either
  client = undefined;
  const command = findCommand();
  if (!command) return void offerInstall();
  log.info(`starting ${command.join(" ")}`);
  item.text = "$(loading~spin) Midfill starts";
  const [program, ...words] = command;
  client = new LanguageClient("midfill", "Midfill", { command: program, args: words }, {
    documentSelector: [{ scheme: "file" }, { scheme: "untitled" }, { notebook: "*" }],
    outputChannel: log,
    middleware,
  });
  const feature: StaticFeature = {
    fillClientCapabilities: (capabilities) => { capabilities.experimental = { midfill: true }; },
    initialize: () => undefined, getState: () => ({ kind: "static" }), clear: () => undefined,
  };
  client.registerFeature(feature);
  client.onNotification("midfill/preview", (params: { token: number; holes: PreviewHole[] }) => {
    const fill = running.get(params.token);
    if (fill?.animation?.isOver === false) void fill.animation.show(params.holes);
    else if (fill && setting("preview") !== "off") showPreview(fill.uri, params.holes);
  });
  client.onNotification("midfill/didChangeStatus", showStatus);
  client.onDidChangeState(({ newState }) => {
    if (newState === State.Starting) forget([...pending.keys()]); // a server counts its fills from 1
  });
  try {
    await client.start();
    showStatus({ kind: "Normal", busy: false, message: "Midfill is ready." });
  } catch (error) {
    showStatus({ kind: "Error", busy: false, message: `Midfill's server does not start: ${String(error)}` });
  }
}

// Code actions and lenses carry the server's commands: they take the same way as ours, with previews.
const middleware: Middleware = {
  executeCommand: async (command, words: Arguments[], next) => {
    const [name, argument] = [command.replace("midfill.", ""), words[0] ?? {}];
    if (name === "fill") return fill(argument);
    if (["accept", "discard", "reroll", "next", "finish"].includes(name)) return run(name, argument);
    return next(command, words);
  },
  didChange: async (event, next) => {
    if (!findAnimation(event.document.uri.toString())) await next(event);
  },
  workspace: {
    handleApplyEdit: async (params, next) => {
      const [change] = params.edit.documentChanges ?? [];
      const animation = change && "textDocument" in change ? findAnimation(change.textDocument.uri) : undefined;
      const edits = change && "edits" in change ? change.edits.filter(TextEdit.is) : [];
      return (await animation?.finish(edits)) ? { applied: true } : next(params, new vscode.CancellationTokenSource().token);
    },
  },
};

/** Tells the server of a document whose changes it was not told of. */
function tellText(document: vscode.TextDocument): void {
  const textDocument = { uri: document.uri.toString(), version: document.version };
  client?.sendNotification("textDocument/didChange", { textDocument, contentChanges: [{ text: document.getText() }] }).catch(() => {});
}

async function fillHere(what: string, more: Arguments = {}): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  await findAnimation(editor.document.uri.toString())?.stop();
  const ranges = what === "stubs" ? [] : editor.selections.slice(0, what === "selection" ? undefined : 1);
  await fill({ uri: editor.document.uri.toString(), what, version: editor.document.version, ranges: ranges.map(toJson), ...more });
}

function addHole(): void {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const uri = editor.document.uri.toString();
  keepHoles(uri, [...(holes.get(uri) ?? []), ...editor.selections.map((selection) => new vscode.Range(selection.start, selection.end))]);
}

async function fillHoles(): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const waiting = editor && holes.get(editor.document.uri.toString());
  if (!waiting?.length) return void vscode.window.showInformationMessage("Midfill: add holes first.");
  keepHoles(editor!.document.uri.toString(), []);
  await fill({ uri: editor!.document.uri.toString(), what: "selection", version: editor!.document.version, ranges: waiting.map(toJson) });
}

function keepHoles(uri: string, now: vscode.Range[]): void {
  holes.set(uri, now);
  vscode.window.visibleTextEditors.filter((editor) => editor.document.uri.toString() === uri).forEach((editor) => showHoles(editor, now));
  void setContexts();
}

/** Holes that wait move with the text; one that an edit touches is let go. */
function carryHoles(event: vscode.TextDocumentChangeEvent): void {
  const uri = event.document.uri.toString();
  const waiting = holes.get(uri);
  if (!waiting?.length) return;
  const carry = (hole: vscode.Range) => event.contentChanges.reduce<Range | undefined>((range, change) => range && shift(range, change), toJson(hole));
  keepHoles(uri, waiting.flatMap((hole) => carry(hole) ?? []).map(toRange));
}

async function fill(params: Arguments): Promise<void> {
  await ask("midfill/fill", String(params.uri), (previewToken) => ({ alternatives: 3, ...params, apply: true, previewToken }),
    setting("preview") === "buffer" && !params.confirm);
}

/** Runs one of the server's commands on a pending fill, by default the one of the active editor. */
async function run(name: string, argument: Arguments = {}): Promise<void> {
  if (name === "finish") return void client?.sendRequest("workspace/executeCommand", { command: "midfill.finish", arguments: [] });
  const id = argument.id ?? pending.get(activeUri());
  if (id === undefined) return void vscode.window.showInformationMessage("Midfill: nothing is pending here.");
  const uri = [...pending].find(([, other]) => other === id)?.[0] ?? activeUri();
  await ask("workspace/executeCommand", uri, (previewToken) => ({
    command: `midfill.${name}`, arguments: [{ ...argument, id, ...(name === "reroll" ? { previewToken } : {}) }],
  }));
}

/** Stops what runs in the active editor; the server answers within a step. Says whether there was anything. */
function cancelRunning(): boolean {
  const found = [...running.values()].filter((fill) => fill.uri === activeUri());
  found.forEach((fill) => fill.cancel.cancel());
  return found.length > 0;
}

async function ask(method: string, uri: string, make: (token: number) => Arguments, isAnimated = false): Promise<void> {
  if (!client) return offerInstall();
  const token = ++lastToken;
  const cancel = new vscode.CancellationTokenSource();
  await findAnimation(uri)?.stop();
  const animation = isAnimated ? openAnimation(uri, tellText) : undefined;
  running.set(token, { uri, cancel, animation });
  await setContexts();
  try {
    const result = await client.sendRequest<FillResult>(method, make(token), cancel.token);
    takeResult(uri, result);
  } catch (error) {
    const { code, data } = error as { code?: number; data?: { pending?: boolean } };
    if (data?.pending === false) forget([uri]);
    log.warn(String(error));
    if (code !== -32800) void vscode.window.showErrorMessage(error instanceof Error ? error.message : String(error));
  } finally {
    running.delete(token);
    await animation?.stop();
    showPreview(uri, []);
    await setContexts();
  }
}

function takeResult(uri: string, result: FillResult): void {
  if (result.holes && result.id !== undefined) {
    pending.set(uri, result.id);
    showPending(uri, result.holes, setting("confidence") !== "off");
    if (result.holes.some((hole) => hole.isGuess)) void vscode.window.setStatusBarMessage("Midfill: this fill is a guess", 5000);
    if (result.newErrors) void vscode.window.setStatusBarMessage(`Midfill: ${result.newErrors} new syntax error(s)`, 5000);
  } else {
    forget([uri]);
  }
}

/** No fill is pending in these documents any more. */
function forget(uris: string[]): void {
  for (const uri of uris) {
    pending.delete(uri);
    showPending(uri, [], false);
  }
  void setContexts();
}

function activeUri(): string {
  return vscode.window.activeTextEditor?.document.uri.toString() ?? "";
}

/** What the keys go by: what there is in the active editor. */
async function setContexts(): Promise<void> {
  const uri = activeUri();
  const isRunning = [...running.values()].some((fill) => fill.uri === uri);
  const contexts = { running: isRunning, pending: pending.has(uri), holes: Boolean(holes.get(uri)?.length) };
  for (const [name, value] of Object.entries(contexts)) await vscode.commands.executeCommand("setContext", `midfill.${name}`, value);
}

function showStatus(status: Status): void {
  const icon = status.busy ? "$(loading~spin)" : status.kind === "Error" ? "$(warning)" : status.kind === "Inactive" ? "$(circle-slash)" : "$(symbol-snippet)";
  item.text = `${icon} Midfill`;
  item.tooltip = status.message;
  item.backgroundColor = status.kind === "Error" ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
}

function takeConfiguration(event: vscode.ConfigurationChangeEvent): void {
  if (event.affectsConfiguration("midfill.serverCommand")) {
    void restart();
  } else if (event.affectsConfiguration("midfill")) {
    void client?.sendNotification("workspace/didChangeConfiguration", { settings: null });
  }
}

function setting(key: string): unknown {
  return vscode.workspace.getConfiguration("midfill").get(key);
}

function toJson(range: vscode.Range): Range {
  const place = (end: vscode.Position) => ({ line: end.line, character: end.character });
  return { start: place(range.start), end: place(range.end) };
}
