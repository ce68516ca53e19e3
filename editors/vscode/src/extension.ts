// Commands, keys and the status bar. The server makes the fills and puts them in; view.ts draws.

import * as vscode from "vscode";
import { LanguageClient, type Middleware, State, type StaticFeature, TextEdit } from "vscode-languageclient/node";
import { type Animation, findAnimation, openAnimation, stopAnimations, watchDocuments } from "./buffer.ts";
import { readKeys } from "./keys.ts";
import { type PendingFill, type PreviewHole, type Range, type Repeat, shift } from "./layout.ts";
import { drawPending, fillsOf, findDocument, forgetPending, hover, takePending } from "./pending.ts";
import { refreshOld, registerOld, toggleOld } from "./old.ts";
import { findCommand, install, isOwn, offerInstall, offerUpdate, removeEverything, runDoctor, watchServer } from "./server.ts";
import { editorsOf, showHoles, showPreview, showRepeats, toRange } from "./view.ts";

interface Status { kind: "Normal" | "Error" | "Inactive"; busy: boolean; message: string; snoozing?: boolean }
type Arguments = Record<string, unknown>;
/** A request that fills, and the holes of its last preview. */
interface Running { uri: string; animation?: Animation; holes: PreviewHole[] }

const REQUEST_CANCELLED = -32800;
// PendingResponseRejected and MessageWriteError: the server ended. The client starts it again by itself, a few times.
const SERVER_ENDED = [-32097, -32099];

let extension: vscode.ExtensionContext;
let client: LanguageClient | undefined;
let lastStart: Promise<void>; // the next one waits for it
let log: vscode.LogOutputChannel;
let item: vscode.StatusBarItem;
let lastToken = 0;
const running = new Map<number, Running>();
const repeats = new Map<string, Repeat[]>(); // document -> where its last change may be made again
const waitingHoles = new Map<string, vscode.Range[]>(); // document -> holes that will be filled together
// What `widen` chooses from, and the hole that waits by its choice. At the index -1 there is none: the next call asks anew.
let widened: { version: number; ranges: vscode.Range[]; index: number; hole?: vscode.Range } | undefined;
let isSnoozing = false;
// The next request for ghost text is ours. VS Code calls it Invoke; told so, the server would ignore snooze and languages.
let asksAgain = false;

/** Waits for nothing: VS Code keeps keys back until it is done, and the cursor goes on meanwhile. */
export function activate(activated: vscode.ExtensionContext): void {
  extension = activated;
  log = vscode.window.createOutputChannel("Midfill", { log: true });
  item = vscode.window.createStatusBarItem("midfill.status", vscode.StatusBarAlignment.Right, 100);
  item.name = "Midfill";
  item.command = "midfill.showMenu";
  item.show();
  void readKeys(extension);
  extension.subscriptions.push(log, item, watchDocuments(), registerOld(), vscode.workspace.onDidChangeConfiguration(takeConfiguration),
    vscode.workspace.onDidCloseTextDocument((document) => void waitingHoles.delete(document.uri.toString())),
    vscode.languages.registerHoverProvider({ pattern: "**" }, { provideHover: hover }),
    vscode.window.onDidChangeVisibleTextEditors(draw),
    vscode.window.onDidChangeActiveTextEditor(() => void setContexts()),
    vscode.workspace.onDidChangeTextDocument(carryHoles));
  const commands: Record<string, () => unknown> = {
    fillBody: () => fillHere("body"),
    fillSelection: () => fillHere("selection"),
    fillHere: () => fillHere("hole"),
    fillStubs: () => fillHere("stubs"),
    fillUntil: () => fillUntil(),
    fillUntilOther: () => fillUntil(true),
    fillStubsOneByOne: () => fillHere("stubs", { confirm: true }),
    addHole,
    fillHoles,
    widenHole: () => widen(1),
    shrinkHole: () => widen(-1),
    nextEdit: () => repeat("next"),
    allEdits: () => repeat("all"),
    dismissEdits: () => repeat("dismiss"),
    showMenu,
    finishFill: () => sendCommand("finish"),
    acceptFill: () => sendCommand("accept"),
    discardFill: () => sendCommand("discard"),
    rerollFill: () => sendCommand("reroll"),
    shorterFill: () => sendCommand("reroll", { length: "shorter" }),
    longerFill: () => sendCommand("reroll", { length: "longer" }),
    nextFill: () => sendCommand("next"),
    showOld: toggleOld,
    acceptHole: () => sendCommand("accept", { part: "hole" }),
    discardHole: () => sendCommand("discard", { part: "hole" }),
    acceptHunk: () => sendCommand("accept", { part: "hunk" }),
    discardHunk: () => sendCommand("discard", { part: "hunk" }),
    doctor: runDoctor,
    showLog: () => log.show(),
    restart,
    install,
    removeEverything,
  };
  for (const [name, command] of Object.entries(commands)) {
    extension.subscriptions.push(vscode.commands.registerCommand(`midfill.${name}`, command));
  }
  watchServer(extension, log, restart, stop);
  lastStart = start();
}

export async function deactivate(): Promise<void> {
  await stopAnimations();
  await client?.stop();
}

function restart(): Promise<void> {
  lastStart = lastStart.then(start);
  return lastStart;
}

async function stop(): Promise<void> {
  if (client) await client.dispose().catch(() => {}); // one that did not start cannot be stopped either
  client = undefined;
  showStatus({ kind: "Inactive", busy: false, message: "Midfill's server has not been started." });
}

async function start(): Promise<void> {
  await stop();
  const command = findCommand();
  if (!command) return void offerInstall();
  log.info(`starting ${command.join(" ")}`);
  item.text = "$(loading~spin) Midfill starts";
  const [program, ...args] = command;
  client = new LanguageClient("midfill", "Midfill", { command: program, args }, {
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
    const request = running.get(params.token);
    if (request?.animation?.isOver === false) void request.animation.show(params.holes);
    else if (request && setting("preview") !== "off") {
      request.holes = params.holes;
      drawPreviews(request.uri);
    }
  });
  client.onNotification("midfill/didChangePending", (params: { uri: string; fills: PendingFill[] }) => {
    const isFirst = params.fills.length > 0 && !fillsOf(params.uri).length;
    if (isFirst) void readKeys(extension).then(drawPending); // its hints name keys, which may have changed
    takePending(params.uri, params.fills);
    refreshOld(params.uri);
    void setContexts();
  });
  client.onNotification("midfill/didChangeRepeats", ({ uri, places }: { uri: string; places: Repeat[] }) => {
    repeats.set(uri, places);
    drawRepeats();
    void setContexts();
  });
  client.onNotification("midfill/didJudge", ({ uri, position }: { uri: string; position: Range["start"] }) => {
    const editor = vscode.window.activeTextEditor;
    if (editor?.document.uri.toString() !== uri || !editor.selection.active.isEqual(new vscode.Position(position.line, position.character))) return;
    asksAgain = true;
    void vscode.commands.executeCommand("editor.action.inlineSuggest.trigger");
  });
  client.onNotification("midfill/didChangeStatus", showStatus);
  client.onDidChangeState(({ newState }) => {
    if (newState === State.Running) return;
    forgetPending();
    repeats.clear();
    drawRepeats();
    void setContexts();
  });
  try {
    await client.start();
    showStatus({ kind: "Normal", busy: false, message: "Midfill is ready." });
    if (isOwn(command)) void offerUpdate();
  } catch (error) {
    showStatus({ kind: "Error", busy: false, message: `Midfill's server does not start: ${String(error)}` });
    if (isOwn(command)) void offerInstall();
  }
}

// Code actions and lenses carry the server's commands: they take the same way as ours, with previews.
const middleware: Middleware = {
  executeCommand: async (command, values: Arguments[], next) => {
    const [name, argument] = [command.replace("midfill.", ""), values[0] ?? {}];
    if (name === "fill") return fill(argument);
    if (name === "until") return fillUntil();
    if (["accept", "discard", "reroll", "next", "finish"].includes(name)) return sendCommand(name, argument);
    return next(command, values);
  },
  provideInlineCompletionItems: (document, position, context, token, next) => {
    const triggerKind = asksAgain ? vscode.InlineCompletionTriggerKind.Automatic : context.triggerKind;
    asksAgain = false;
    return next(document, position, { ...context, triggerKind }, token);
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

/** Tells the server a document's text at the end of an animation, during which `didChange` is held back. */
function tellText(document: vscode.TextDocument): void {
  const textDocument = { uri: document.uri.toString(), version: document.version };
  client?.sendNotification("textDocument/didChange", { textDocument, contentChanges: [{ text: document.getText() }] }).catch(() => {});
}

async function fillHere(what: string, more: Arguments = {}): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const animation = findAnimation(editor.document.uri.toString());
  if (animation) await animation.stop();
  const ranges = what === "stubs" ? [] : editor.selections.slice(0, what === "selection" ? undefined : 1);
  await fill({ uri: editor.document.uri.toString(), what, version: editor.document.version, ranges: ranges.map(toJson), ...more });
}

/** Fills the body at the cursor until a command passes, which is asked for once and kept with a workspace that is trusted. */
async function fillUntil(asksAnew = false): Promise<void> {
  if (!vscode.workspace.isTrusted) {
    const choice = await vscode.window.showWarningMessage("Midfill: tests are code of this workspace; they run once it is trusted.", "Manage Workspace Trust");
    return void (choice && vscode.commands.executeCommand("workbench.trust.manage"));
  }
  const known = asksAnew ? undefined : extension.workspaceState.get<string>("until");
  const guesses = known ? undefined : await client?.sendRequest<{ commands: string[] }>("midfill/tests", { uri: activeUri() }).catch(explain);
  const until = known ?? (await vscode.window.showInputBox({
    title: "Fill until this command passes", value: guesses?.commands[0],
    prompt: "It runs in a sandbox, on a copy of this folder. {tests} are those that import the file.",
  }));
  if (!until) return;
  await extension.workspaceState.update("until", until);
  await fillHere("body", { until });
}

function addHole(): void {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const uri = editor.document.uri.toString();
  setHoles(uri, [...(waitingHoles.get(uri) ?? []), ...editor.selections.map((selection) => new vscode.Range(selection.start, selection.end))]);
}

/** Adds a hole around the selection, then with each call the next larger one, or the next smaller, at last none. */
async function widen(step: number): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor || !client) return;
  const { document, selection } = editor;
  const uri = document.uri.toString();
  const isShown = waitingHoles.get(uri)?.some((hole) => hole === widened?.hole);
  let previous = widened?.hole;
  if (isShown && widened?.version === document.version) {
    widened.index = Math.min(widened.index + step, widened.ranges.length - 1);
  } else {
    const asked = { uri, version: document.version, range: toJson(selection) };
    const around = await client.sendRequest<{ ranges: Range[] }>("midfill/holes", asked).catch(explain);
    if (!around || document.version !== asked.version) return; // the answer is for another text
    if (!around.ranges.length) return void vscode.window.showInformationMessage("Midfill: nothing to fill is around the cursor.");
    previous = widened?.hole;
    widened = { version: asked.version, ranges: around.ranges.map(toRange), index: 0 };
  }
  const others = (waitingHoles.get(uri) ?? []).filter((hole) => hole !== previous);
  widened.hole = widened.ranges[widened.index];
  setHoles(uri, widened.hole ? [...others, widened.hole] : others);
}

/** What the status bar offers: no ghost text for a while, or in a language; the doctor and the log. */
async function showMenu(): Promise<void> {
  const language = vscode.window.activeTextEditor?.document.languageId ?? "*";
  const languages = vscode.workspace.getConfiguration("midfill").get<Record<string, boolean>>("languages") ?? {};
  const isOn = languages[language] ?? languages["*"] ?? true;
  const snooze = (minutes: number) => client?.sendRequest("workspace/executeCommand", { command: "midfill.snooze", arguments: [{ minutes }] }).catch(explain);
  const choices: Record<string, () => unknown> = {
    [isSnoozing ? "Ghost text again" : "No ghost text for 5 minutes"]: () => snooze(isSnoozing ? 0 : 5),
    [`${isOn ? "No ghost" : "Ghost"} text in ${language === "*" ? "all languages" : language}`]: () =>
      vscode.workspace.getConfiguration("midfill").update("languages", { ...languages, [language]: !isOn }, vscode.ConfigurationTarget.Global),
    Doctor: runDoctor,
    "Show Log": () => log.show(),
  };
  const chosen = await vscode.window.showQuickPick(Object.keys(choices), { title: "Midfill" });
  if (chosen) await choices[chosen]();
}

/** Fills the holes that wait, which wait again if that fails in an unchanged text. */
async function fillHoles(): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const uri = activeUri();
  const waiting = waitingHoles.get(uri);
  if (!editor || !waiting?.length) return void vscode.window.showInformationMessage("Midfill: add holes first.");
  const { document } = editor;
  const text = document.getText();
  setHoles(uri, []);
  const isFilled = await fill({ uri, what: "selection", version: document.version, ranges: waiting.map(toJson) });
  if (!isFilled && document.getText() === text) setHoles(uri, waiting);
}

function setHoles(uri: string, holes: vscode.Range[]): void {
  waitingHoles.set(uri, holes);
  for (const editor of editorsOf(uri)) showHoles(editor, holes);
  void setContexts();
}

/** Holes that wait move with the text; one that an edit touches is let go. A save is an event without changes. */
function carryHoles(event: vscode.TextDocumentChangeEvent): void {
  const uri = event.document.uri.toString();
  const waiting = waitingHoles.get(uri);
  if (!waiting?.length || !event.contentChanges.length) return;
  setHoles(uri, waiting.flatMap((hole) => {
    const range = event.contentChanges.reduce<Range | undefined>((range, change) => range && shift(range, change), toJson(hole));
    const moved = range && toRange(range);
    if (widened?.hole === hole) widened.hole = moved;
    return moved ?? [];
  }));
}

async function fill(params: Arguments): Promise<boolean> {
  return ask("midfill/fill", String(params.uri), (previewToken) => ({ alternatives: 3, ...params, apply: true, previewToken }),
    setting("preview") === "buffer" && !params.confirm); // what the user has still to confirm is not written before
}

/** Runs one of the server's commands on the fill that it names, by default at the selection's start. */
async function sendCommand(name: string, argument: Arguments = {}): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const uri = findDocument(argument.id) ?? activeUri();
  const target = argument.id === undefined && editor ? { uri, position: toJson(editor.selections[0]).start } : {};
  const send = (previewToken?: number) => ({ command: `midfill.${name}`, arguments: [{ ...argument, ...target, previewToken }] });
  if (["reroll", "next"].includes(name)) await ask("workspace/executeCommand", uri, send);
  else await client?.sendRequest("workspace/executeCommand", send()).catch(explain);
}

/** "next" makes the last change again at the selection's line and goes to the next place, "all" everywhere; "dismiss" forgets it. */
function repeat(action: string): Promise<void> | undefined {
  return vscode.window.activeTextEditor && sendCommand("repeat", { action });
}

function drawRepeats(): void {
  for (const editor of vscode.window.visibleTextEditors) showRepeats(editor, repeats.get(editor.document.uri.toString()) ?? []);
}

/** Says what went wrong, unless the user wanted it or the server has said it. */
function explain(error: unknown): void {
  const { code, message, data } = error as { code?: number; message?: string; data?: { shown?: boolean } | null };
  log.warn(String(error));
  if (code === REQUEST_CANCELLED || data?.shown) return;
  const isDead = code !== undefined && SERVER_ENDED.includes(code);
  void vscode.window.showErrorMessage(isDead ? "Midfill: the server ended; it is started again. Try again." : message ?? String(error));
}

/** Sends a request that fills; while it runs, keys and previews know of it. False if it fails. */
async function ask(method: string, uri: string, make: (token: number) => Arguments, isAnimated = false): Promise<boolean> {
  if (!client) return void offerInstall(), false;
  const token = ++lastToken;
  await findAnimation(uri)?.stop();
  const animation = isAnimated ? openAnimation(uri, tellText) : undefined;
  running.set(token, { uri, animation, holes: [] });
  await setContexts();
  try {
    await client.start();
    await new Promise(setImmediate); // documents are opened behind what waited for the start
    await client.sendRequest(method, make(token));
    return true;
  } catch (error) {
    explain(error);
    return false;
  } finally {
    running.delete(token);
    await animation?.stop();
    drawPreviews(uri);
    await setContexts();
  }
}

/** What runs in a document as it looks now, all of it together. */
function drawPreviews(uri: string): void {
  showPreview(uri, [...running.values()].filter((request) => request.uri === uri).flatMap((request) => request.holes));
}

/** Everything in all editors, as one that was split or shown again has nothing yet. */
function draw(): void {
  drawPending();
  drawRepeats();
  for (const editor of vscode.window.visibleTextEditors) {
    const uri = editor.document.uri.toString();
    showHoles(editor, waitingHoles.get(uri) ?? []);
    drawPreviews(uri);
  }
  void setContexts();
}

function activeUri(): string {
  return vscode.window.activeTextEditor?.document.uri.toString() ?? "";
}

/** What the keys go by: what there is in the active editor. */
async function setContexts(): Promise<void> {
  const uri = activeUri();
  const isRunning = [...running.values()].some((request) => request.uri === uri);
  const offers = (length: string) => fillsOf(uri).some(({ lengths }) => lengths?.includes(length));
  const contexts = {
    running: isRunning, pending: fillsOf(uri).length > 0, canShorten: offers("shorter"), canLengthen: offers("longer"),
    holes: Boolean(waitingHoles.get(uri)?.length), repeats: Boolean(repeats.get(uri)?.length),
  };
  for (const [name, value] of Object.entries(contexts)) await vscode.commands.executeCommand("setContext", `midfill.${name}`, value);
}

function showStatus(status: Status): void {
  const icon = status.busy ? "$(loading~spin)" : status.kind === "Error" ? "$(warning)" : status.kind === "Inactive" ? "$(circle-slash)" : "$(symbol-snippet)";
  isSnoozing = status.snoozing ?? false;
  item.text = `${isSnoozing ? "$(bell-slash)" : icon} Midfill`;
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
  const copy = ({ line, character }: vscode.Position) => ({ line, character });
  return { start: copy(range.start), end: copy(range.end) };
}
