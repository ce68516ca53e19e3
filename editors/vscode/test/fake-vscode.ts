// As much of VS Code as the extension needs: a window that has the text, and an extension that hears of changes later.

export class Position { constructor(readonly line: number, readonly character: number) {} }
export class Range {
  readonly start: Position;
  readonly end: Position;
  constructor(...ends: [Position, Position] | [number, number, number, number]) {
    [this.start, this.end] = ends.length === 2 ? ends : [new Position(ends[0], ends[1]), new Position(ends[2], ends[3])];
  }
}
export class TextEdit { constructor(readonly range: Range, readonly newText: string) {} }
export class WorkspaceEdit { edits: TextEdit[] = []; set(_: unknown, edits: TextEdit[]) { this.edits = edits; } }
export class ThemeColor {}
export class MarkdownString { constructor(readonly value: string) {} }
export class Hover { constructor(readonly contents: MarkdownString) {} }
export class EventEmitter { event = () => undefined; fire(): void {} }
export class TabInputTextDiff {}
export const languages = { registerHoverProvider: () => undefined };
export const Uri = { joinPath: () => undefined };
export const EndOfLine = { LF: 1, CRLF: 2 };
export const DecorationRangeBehavior = { OpenOpen: 0 };
export const Disposable = { from: () => undefined };
export const StatusBarAlignment = { Right: 2 };
export class CancellationTokenSource { readonly token = {}; cancel(): void {} }

/** Numbers from 0 to 1, the same for the same seed. */
export function makeChance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

let delays = makeChance(1);
export const seedDelays = (seed: number) => { delays = makeChance(seed); };

interface Change { rangeOffset: number; rangeLength: number; text: string; range?: Range }
type Listener = (event: { document: FakeDocument; contentChanges: Change[]; waitUntil: (done: Promise<unknown>) => void }) => void;
const listeners: Listener[] = [];
const saving: Listener[] = [];
const looking: (() => void)[] = [];
let activating = (_: FakeEditor | undefined) => {};
let closing = (_: FakeDocument) => {};
/** What the user was told, which keys are on, and the commands they have. */
export const told: string[] = [];
export const contexts: Record<string, unknown> = {};
export const registered: Record<string, () => unknown> = {};
export const commands = {
  registerCommand: (name: string, run: () => unknown) => { registered[name] = run; },
  executeCommand: async (_: string, name: string, value: unknown) => { contexts[name] = value; },
};
export const window = {
  tabGroups: { all: [] },
  visibleTextEditors: [] as FakeEditor[],
  activeTextEditor: undefined as FakeEditor | undefined,
  createOutputChannel: () => ({ info: () => {}, warn: () => {}, show: () => {} }),
  createStatusBarItem: () => ({ show: () => {} }),
  setStatusBarMessage: () => {},
  showErrorMessage: (message: string) => void told.push(message),
  showInformationMessage: (message: string) => void told.push(message),
  onDidChangeActiveTextEditor: (listener: typeof activating) => { activating = listener; },
  createTextEditorDecorationType: () => ({}),
  showWarningMessage: async (message: string) => void told.push(message),
  inputs: [] as string[],
  showInputBox: async ({ value }: { value?: string }) => { told.push(`asked with ${value}`); return window.inputs.shift(); },
  onDidChangeVisibleTextEditors: (listener: () => void) => void looking.push(listener),
};
let shown: FakeDocument;
export const workspace = {
  isTrusted: true,
  onDidChangeTextDocument: (listener: Listener) => void listeners.push(listener),
  onWillSaveTextDocument: (listener: Listener) => void saving.push(listener),
  onDidCloseTextDocument: (listener: typeof closing) => { closing = listener; },
  onDidChangeConfiguration: (listener: typeof tellConfiguration) => { tellConfiguration = listener; },
  getConfiguration: () => ({ get: (key: string) => (key === "serverCommand" ? ["server"] : undefined) }),
  registerTextDocumentContentProvider: () => undefined,
  fs: { readFile: async () => { throw new Error("no such file"); } },
  applyEdit: (edit: WorkspaceEdit) => shown.take(edit.edits, { undoStopBefore: true, undoStopAfter: true }),
};

/** `text` is what the user sees; the extension knows `heard`. All that the window says comes in order, and late. */
export class FakeDocument {
  readonly uri = { scheme: "file", toString: () => this.name };
  readonly eol: number;
  readonly isDirty = false;
  readonly isClosed = false;
  version = 1;
  undo: string[] = [];
  private heard: string;
  private now = 1;
  private channel: Promise<unknown> = Promise.resolve();
  private isOpen = false;

  constructor(public text: string, private readonly name = "file:///a.py") {
    this.heard = text;
    this.eol = text.includes("\r\n") ? EndOfLine.CRLF : EndOfLine.LF;
    shown = this;
  }

  getText(): string { return this.heard; }

  positionAt(offset: number): Position {
    const before = this.heard.slice(0, offset).split("\n");
    return new Position(before.length - 1, before[before.length - 1].length);
  }

  private offset(place: Position): number {
    const lines = this.heard.split("\n");
    return lines.slice(0, place.line).join("\n").length + (place.line ? 1 : 0) + place.character;
  }

  /** Somebody types. */
  type(offset: number, typed: string): void {
    this.undo.push(this.text);
    this.isOpen = false;
    this.change([{ rangeOffset: offset, rangeLength: 0, text: typed }]);
  }

  /** The extension's edit, refused where the window is ahead of it. */
  async take(edits: TextEdit[], stops: { undoStopBefore: boolean; undoStopAfter: boolean }): Promise<boolean> {
    const [version, places] = [this.version, edits.map(({ range, newText }) => ({ from: this.offset(range.start), to: this.offset(range.end), newText }))];
    await later();
    const isTaken = version === this.now;
    if (isTaken) {
      if (stops.undoStopBefore || !this.isOpen) this.undo.push(this.text);
      this.isOpen = !stops.undoStopAfter;
      this.change(places.map(({ from, to, newText }) => ({ rangeOffset: from, rangeLength: to - from, text: newText })));
    }
    return this.say(() => isTaken);
  }

  /** Ascending, of the text before them. */
  private change(changes: Change[]): void {
    const text = changes.reduceRight((text, { rangeOffset, rangeLength, text: typed }) =>
      text.slice(0, rangeOffset) + typed + text.slice(rangeOffset + rangeLength), this.text);
    this.text = text;
    const version = ++this.now;
    void this.say(() => {
      [this.heard, this.version] = [text, version];
      listeners.forEach((listener) => listener({ document: this, contentChanges: changes.reverse(), waitUntil: () => {} }));
    });
  }

  private say<T>(what: () => T): Promise<T> {
    const said = this.channel.then(later).then(what);
    this.channel = said.catch(() => undefined);
    return said;
  }

  async save(): Promise<string> {
    const waits: Promise<unknown>[] = [];
    saving.forEach((listener) => listener({ document: this, contentChanges: [], waitUntil: (done) => void waits.push(done) }));
    await Promise.all(waits);
    return this.text;
  }

  async rest(): Promise<void> {
    let last;
    do { last = this.channel; await last; await later(); } while (last !== this.channel);
  }
}

export class FakeEditor {
  selections: Range[] = [];
  get selection(): Range { return this.selections[0]; }
  constructor(readonly document: FakeDocument) {}
  shown = new Map<object, unknown[]>();
  setDecorations(type: object, options: unknown[]): void { this.shown.set(type, options); }
  get numShown(): number { return [...this.shown.values()].flat().length; }
  edit(fill: (builder: { replace: (range: Range, text: string) => void }) => void, stops: { undoStopBefore: boolean; undoStopAfter: boolean }): Promise<boolean> {
    const edits: TextEdit[] = [];
    fill({ replace: (range, text) => void edits.push(new TextEdit(range, text)) });
    return this.document.take(edits, stops);
  }
}

export function hide(): void {
  show();
}

/** The user sees these editors and no other. */
export function show(...editors: FakeEditor[]): void {
  window.visibleTextEditors = editors;
  looking.forEach((look) => look());
}

/** The user goes to an editor; the others are hidden. */
export function goTo(editor: FakeEditor): void {
  window.activeTextEditor = editor;
  show(editor);
  activating(editor);
}

export function close(document: FakeDocument): void {
  closing(document);
}

/** The extension hears of changes with these ranges. */
export let tellConfiguration = (_: { affectsConfiguration: (section: string) => boolean }) => {};

export function tellChanges(document: FakeDocument, changes: { range: Range; text: string }[]): void {
  const contentChanges = changes.map((change) => ({ rangeOffset: 0, rangeLength: 0, ...change }));
  listeners.forEach((listener) => listener({ document, contentChanges, waitUntil: () => {} }));
}

function later(): Promise<void> {
  return new Promise((done) => setTimeout(done, delays() * 2));
}
