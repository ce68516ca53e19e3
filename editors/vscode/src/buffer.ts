// Writes a fill into the buffer itself while it sharpens, and always finds the way back. Asks the server nothing.

import * as vscode from "vscode";
import { type Change, type Edit, fillRegions, findGuesses, follow, locate, offsetIn, type PreviewHole, type Region, rewrite } from "./layout.ts";
import { showGuesses, toRange } from "./view.ts";

const MAX_TRIES = 10;
const animations = new Map<string, Animation>();
type Stops = { undoStopBefore: boolean; undoStopAfter: boolean };

/** The animation of a document. While there is one, the server is told of no change. */
export function findAnimation(uri: string): Animation | undefined {
  return animations.get(uri);
}

/** Begins one where nothing can be lost: what is on disk is what is shown, so that a crash loses no text. */
export function openAnimation(uri: string, tell: (document: vscode.TextDocument) => void): Animation | undefined {
  const document = vscode.window.visibleTextEditors.find((editor) => editor.document.uri.toString() === uri)?.document;
  if (!document || document.isDirty || document.uri.scheme !== "file" || animations.has(uri)) return undefined;
  const animation = new Animation(document, tell);
  animations.set(uri, animation);
  return animation;
}

export const stopAnimations = () => Promise.all([...animations.values()].map((animation) => animation.stop()));

/** What ends animations: an edit that is not theirs, a save, a document that is hidden or closed. */
export function watchDocuments(): vscode.Disposable {
  const of = (document: vscode.TextDocument) => animations.get(document.uri.toString());
  return vscode.Disposable.from(
    vscode.workspace.onDidChangeTextDocument((event) => of(event.document)?.notice(event.contentChanges)),
    vscode.workspace.onWillSaveTextDocument((event) => {
      const animation = of(event.document);
      if (animation) event.waitUntil(animation.stop());
    }),
    vscode.workspace.onDidCloseTextDocument((document) => void of(document)?.stop()),
    vscode.window.onDidChangeVisibleTextEditors(() => animations.forEach((animation) => animation.notice([]))),
  );
}

/** Shows `regions` in the document until somebody else changes it: from then on, it only finds the way back. */
export class Animation {
  private readonly before: string;
  private readonly version: number;
  /** Undefined once somebody else wrote into one of them: they have their way. */
  private regions: Region[] | undefined = [];
  private isForeign = false;
  private writing: Promise<boolean> | undefined;
  private heard: (readonly Change[])[] = [];
  private ending: Promise<boolean> | undefined;

  constructor(private readonly document: vscode.TextDocument, private readonly tell: (document: vscode.TextDocument) => void) {
    this.before = document.getText();
    this.version = document.version;
  }

  get isOver(): boolean {
    return this.ending !== undefined;
  }

  /** Writes a step. One that comes while the last is being written is left out. */
  async show(holes: PreviewHole[]): Promise<void> {
    if (this.ending || this.writing) return;
    this.regions = this.regions?.length ? this.regions : holes.map(({ range }) => {
      const start = offsetIn(this.before, range.start);
      const old = this.before.slice(start, offsetIn(this.before, range.end));
      return { start, old, at: start, now: old };
    });
    const isFirst = this.document.version === this.version;
    const done = await this.write(holes.map((hole) => hole.text), { undoStopBefore: isFirst, undoStopAfter: false });
    if (done && !this.ending) this.draw(holes);
    this.notice([]);
  }

  /** Puts the fill in for what was shown: all of it is one undo step. False where it is over, the old text back. */
  finish(edits: Edit[]): Promise<boolean> {
    return this.ending ? this.ending.then(() => false) : (this.ending = this.end(edits));
  }

  /** Puts the old text back. What somebody else wrote stays; where they wrote into a hole, all stays as it is. */
  async stop(): Promise<void> {
    await (this.ending ??= this.end());
  }

  notice(changes: readonly Change[]): void {
    if (changes.length) this.heard.push(changes);
    if (this.writing) return;
    this.take(this.heard);
    if (this.isForeign || !this.editor) void this.stop();
  }

  private take(heard: (readonly Change[])[]): void {
    this.heard = [];
    this.isForeign ||= heard.length > 0;
    for (const changes of heard) this.regions = this.regions && follow(this.regions, changes);
  }

  private get editor(): vscode.TextEditor | undefined {
    return vscode.window.visibleTextEditors.find((editor) => editor.document === this.document);
  }

  private async end(edits?: Edit[]): Promise<boolean> {
    await this.writing;
    const texts = edits && this.regions && fillRegions(this.before, this.regions, edits);
    const done = texts !== undefined && await this.write(texts, { undoStopBefore: false, undoStopAfter: true });
    for (let tries = 0; !done && this.regions && tries < MAX_TRIES && !this.document.isClosed; tries++) {
      const stops = { undoStopBefore: this.isForeign, undoStopAfter: true };
      if (await this.replace(this.regions.map((region) => region.old), stops)) break;
    }
    animations.delete(this.document.uri.toString());
    if (this.editor) showGuesses(this.editor, [], []);
    if (!this.document.isClosed && this.document.version !== this.version) this.tell(this.document);
    return done;
  }

  private async write(texts: string[], stops: Stops): Promise<boolean> {
    if (!this.editor || this.isForeign || texts.length !== this.regions?.length) return false;
    const newline = this.document.eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n";
    return this.replace(texts.map((text) => text.replace(/\r\n|\r|\n/g, newline)), stops);
  }

  /** False where the document moved on meanwhile: VS Code takes edits for the version that they were made for alone. */
  private async replace(texts: string[], stops: Stops): Promise<boolean> {
    const regions = this.regions!;
    if (regions.every((region, index) => region.now === texts[index])) return true;
    const place = (offset: number) => this.document.positionAt(offset);
    const edits = regions.map(({ at, now }, index) => new vscode.TextEdit(new vscode.Range(place(at), place(at + now.length)), texts[index]));
    const hidden = new vscode.WorkspaceEdit();
    hidden.set(this.document.uri, edits);
    this.writing = (async () => this.editor
      ? this.editor.edit((builder) => edits.forEach((edit) => builder.replace(edit.range, edit.newText)), stops)
      : vscode.workspace.applyEdit(hidden))().catch(() => false);
    const done = await this.writing;
    this.writing = undefined;
    if (done) this.regions = rewrite(regions, texts);
    this.take(this.heard.slice(done ? 1 : 0)); // the first change is the edit's own
    return done;
  }

  private draw(holes: PreviewHole[]): void {
    const find = (isFaint: boolean) => holes.flatMap((hole, index) => {
      const { line, character } = this.document.positionAt(this.regions?.[index].at ?? 0);
      const shown = { ...hole, range: { start: { line, character }, end: { line, character } } };
      return findGuesses(hole, isFaint).map(([from, to]) => toRange({ start: locate(shown, from), end: locate(shown, to) }));
    });
    if (this.editor) showGuesses(this.editor, find(false), find(true));
  }
}
