// Commands, keys and the status bar. The server makes the fills and puts them in; view.ts draws.

import * as vscode from "vscode";
import { LanguageClient, type Middleware, State, type StaticFeature, TextEdit } from "vscode-languageclient/node";
import { type Animation, findAnimation, openAnimation, stopAnimations, watchDocuments } from "./buffer.ts";
import { readKeys } from "./keys.ts";
import { type PendingFill, type PreviewHole, type Range, type Repeat, shift } from "./layout.ts";
import { drawPending, fillsOf, findDocument, forgetPending, hover, takePending } from "./pending.ts";
import { refreshOld, registerOld, toggleOld } from "./old.ts";
import { findCommand, install, isOwn, offerInstall, offerUpdate, removeEverything, runDoctor, watchServer } from "./server.ts";
import { showHoles, showPreview, showRepeats, toRange } from "./view.ts";

interface Status { kind: "Normal" | "Warning" | "Error" | "Inactive"; busy: boolean; message: string; snoozing?: boolean }
type Arguments = Record<string, unknown>;
interface Running { uri: string; cancel: vscode.CancellationTokenSource; animation?: Animation; holes: PreviewHole[] }

// Errors of a client whose server ended: it is started again by itself, a few times.
const ENDED = [-32097, -32099];

let context: vscode.ExtensionContext;
let client: LanguageClient | undefined;
let starts: Promise<void>; // one after the other
let log: vscode.LogOutputChannel;
let item: vscode.StatusBarItem;
let lastToken = 0;
const running = new Map<number, Running>();
const repeats = new Map<string, Repeat[]>(); // document -> where its last change may be made again
const holes = new Map<string, vscode.Range[]>(); // document -> holes that wait
let wide: { uri: string; version: number; ranges: vscode.Range[]; index: number; shown?: vscode.Range } | undefined;
let isSnoozing = false;
let asksAgain = false; // for ghost text that the engine has judged

/** Waits for nothing: VS Code keeps keys back until it is done, and the cursor goes on meanwhile. */
export function activate(activated: vscode.ExtensionContext): void {
  context = activated;
  log = vscode.window.createOutputChannel("Midfill", { log: true });
  item = vscode.window.createStatusBarItem("midfill.status", vscode.StatusBarAlignment.Right, 100);
  item.name = "Midfill";
  item.command = "midfill.showMenu";
  item.show();
  void readKeys(context);
  context.subscriptions.push(log, item, watchDocuments(), registerOld(), vscode.workspace.onDidChangeConfiguration(takeConfiguration),
    vscode.workspace.onDidCloseTextDocument((document) => void holes.delete(document.uri.toString())),
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
    finishFill: () => run("finish"),
    acceptFill: () => run("accept"),
    discardFill: () => run("discard"),
    rerollFill: () => run("reroll"),
    shorterFill: () => run("reroll", { length: "shorter" }),
    longerFill: () => run("reroll", { length: "longer" }),
    nextFill: () => run("next"),
    showOld: toggleOld,
    acceptHole: () => run("accept", { part: "hole" }),
    discardHole: () => run("discard", { part: "hole" }),
    acceptHunk: () => run("accept", { part: "hunk" }),
    discardHunk: () => run("discard", { part: "hunk" }),
    doctor: runDoctor,
    showLog: () => log.show(),
    restart,
    install,
    removeEverything,
  };
  for (const [name, command] of Object.entries(commands)) {
    context.subscriptions.push(vscode.commands.registerCommand(`midfill.${name}`, command));
  }
  watchServer(context, log, restart, stop);
  starts = start();
}

export async function deactivate(): Promise<void> {
  await stopAnimations();
  await client?.stop();
}

function restart(): Promise<void> {
  starts = starts.then(start);
  return starts;
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
    else if (fill && setting("preview") !== "off") {
      fill.holes = params.holes;
      drawPreviews(fill.uri);
    }
  });
  client.onNotification("midfill/didChangePending", (params: { uri: string; fills: PendingFill[] }) => {
    if (params.fills.length && !fillsOf(params.uri).length) void readKeys(context).then(drawPending);
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
    asksAgain = true; // the command counts as a request of the user's
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
  executeCommand: async (command, words: Arguments[], next) => {
    const [name, argument] = [command.replace("midfill.", ""), words[0] ?? {}];
    if (name === "fill") return fill(argument);
    if (name === "until") return fillUntil();
    if (["accept", "discard", "reroll", "next", "finish"].includes(name)) return run(name, argument);
    return next(command, words);
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

/** Tells the server of a document whose changes it was not told of. */
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
async function fillUntil(isNew = false): Promise<void> {
  if (!vscode.workspace.isTrusted) {
    const choice = await vscode.window.showWarningMessage("Midfill: tests are code of this workspace; they run once it is trusted.", "Manage Workspace Trust");
    return void (choice && vscode.commands.executeCommand("workbench.trust.manage"));
  }
  const known = isNew ? undefined : context.workspaceState.get<string>("until");
  const guesses = known ? undefined : await client?.sendRequest<{ commands: string[] }>("midfill/tests", { uri: activeUri() }).catch(explain);
  const until = known ?? (await vscode.window.showInputBox({
    title: "Fill until this command passes", value: guesses?.commands[0],
    prompt: "It runs in a sandbox, on a copy of this folder. {tests} are those that import the file.",
  }));
  if (!until) return;
  await context.workspaceState.update("until", until);
  await fillHere("body", { until });
}

function addHole(): void {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const uri = editor.document.uri.toString();
  keepHoles(uri, [...(holes.get(uri) ?? []), ...editor.selections.map((selection) => new vscode.Range(selection.start, selection.end))]);
}

/** Shows a hole around the cursor, then with each call the next larger one, or the next smaller, at last none. */
async function widen(step: number): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor || !client) return;
  const { document, selection } = editor;
  const uri = document.uri.toString();
  const others = (holes.get(uri) ?? []).filter((hole) => hole !== wide?.shown);
  if (wide?.uri === uri && wide.version === document.version && holes.get(uri)?.includes(wide.shown!)) {
    wide.index = Math.min(wide.index + step, wide.ranges.length - 1);
  } else {
    const asked = { uri, version: document.version, range: toJson(selection) };
    const found = await client.sendRequest<{ ranges: Range[] }>("midfill/holes", asked).catch(explain);
    if (!found?.ranges.length) return void (found && vscode.window.showInformationMessage("Midfill: nothing to fill is around the cursor."));
    wide = { uri, version: document.version, ranges: found.ranges.map(toRange), index: 0 };
  }
  wide.shown = wide.ranges[wide.index];
  keepHoles(uri, wide.shown ? [...others, wide.shown] : others);
}

/** What the status bar offers: no ghost text for a while, or in a language. */
async function showMenu(): Promise<void> {
  const language = vscode.window.activeTextEditor?.document.languageId ?? "*";
  const languages = vscode.workspace.getConfiguration("midfill").get<Record<string, boolean>>("languages") ?? {};
  const isOn = languages[language] ?? languages["*"] ?? true;
  const snooze = (minutes: number) => client?.sendRequest("workspace/executeCommand", { command: "midfill.snooze", arguments: [{ minutes }] }).catch(explain);
  const choices: Record<string, () => unknown> = {
    [isSnoozing ? "Ghost text again" : "No ghost text for 5 minutes"]: () => snooze(isSnoozing ? 0 : 5),
    [`${isOn ? "No ghost" : "Ghost"} text in ${language}`]: () =>
      vscode.workspace.getConfiguration("midfill").update("languages", { ...languages, [language]: !isOn }, vscode.ConfigurationTarget.Global),
    Doctor: runDoctor,
    "Show Log": () => log.show(),
  };
  const chosen = await vscode.window.showQuickPick(Object.keys(choices), { title: "Midfill" });
  if (chosen) await choices[chosen]();
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

/** Runs one of the server's commands on the fill that it names, by default the one at the cursor. */
async function run(name: string, argument: Arguments = {}): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const uri = findDocument(argument.id) ?? activeUri();
  const place = argument.id === undefined && editor ? { uri, position: toJson(editor.selections[0]).start } : {};
  const send = (previewToken?: number) => ({ command: `midfill.${name}`, arguments: [{ ...argument, ...place, previewToken }] });
  if (["reroll", "next"].includes(name)) return ask("workspace/executeCommand", uri, send);
  await client?.sendRequest("workspace/executeCommand", send()).catch(explain);
}

/** Makes the last change again at the cursor's line, and goes to the next place. */
async function repeat(action: string): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const argument = { uri: editor.document.uri.toString(), position: toJson(editor.selections[0]).start, action };
  await client?.sendRequest("workspace/executeCommand", { command: "midfill.repeat", arguments: [argument] }).catch(explain);
}

function drawRepeats(): void {
  for (const editor of vscode.window.visibleTextEditors) showRepeats(editor, repeats.get(editor.document.uri.toString()) ?? []);
}

/** Says what went wrong, unless the user wanted it. */
function explain(error: unknown): void {
  const { code, message } = error as { code?: number; message?: string };
  log.warn(String(error));
  if (code === -32800) return;
  const isDead = code !== undefined && ENDED.includes(code);
  void vscode.window.showErrorMessage(isDead ? "Midfill: the server ended; it is started again. Fill again." : message ?? String(error));
}

async function ask(method: string, uri: string, make: (token: number) => Arguments, isAnimated = false): Promise<void> {
  if (!client) return offerInstall();
  const token = ++lastToken;
  const cancel = new vscode.CancellationTokenSource();
  await findAnimation(uri)?.stop();
  const animation = isAnimated ? openAnimation(uri, tellText) : undefined;
  running.set(token, { uri, cancel, animation, holes: [] });
  await setContexts();
  try {
    await client.start();
    await new Promise(setImmediate); // documents are opened behind what waited for the start
    await client.sendRequest(method, make(token), cancel.token);
  } catch (error) {
    explain(error);
  } finally {
    running.delete(token);
    await animation?.stop();
    drawPreviews(uri);
    await setContexts();
  }
}

/** What runs in a document as it looks now, all of it together. */
function drawPreviews(uri: string): void {
  showPreview(uri, [...running.values()].filter((fill) => fill.uri === uri).flatMap((fill) => fill.holes));
}

/** Everything in all editors, as one that was split or shown again has nothing yet. */
function draw(): void {
  drawPending();
  drawRepeats();
  for (const editor of vscode.window.visibleTextEditors) {
    const uri = editor.document.uri.toString();
    showHoles(editor, holes.get(uri) ?? []);
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
  const isRunning = [...running.values()].some((fill) => fill.uri === uri);
  const offers = (length: string) => fillsOf(uri).some(({ lengths }) => lengths?.includes(length));
  const contexts = { running: isRunning, pending: fillsOf(uri).length > 0, canShorten: offers("shorter"), canLengthen: offers("longer"), holes: Boolean(holes.get(uri)?.length), repeats: Boolean(repeats.get(uri)?.length) };
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
  const place = (end: vscode.Position) => ({ line: end.line, character: end.character });
  return { start: place(range.start), end: place(range.end) };
}
