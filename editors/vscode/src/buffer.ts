// Writes a fill into the buffer itself while it sharpens, and always finds the way back. Asks the server nothing.

import * as vscode from "vscode";
import { fillRegions, findGuesses, type Edit, locate, offsetIn, placeRegions, type PreviewHole, type Region, showRegions, type Span } from "./layout.ts";
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
    vscode.workspace.onDidChangeTextDocument((event) => of(event.document)?.notice()),
    vscode.workspace.onWillSaveTextDocument((event) => {
      const animation = of(event.document);
      if (animation) event.waitUntil(animation.stop());
    }),
    vscode.workspace.onDidCloseTextDocument((document) => void of(document)?.stop()),
    vscode.window.onDidChangeVisibleTextEditors(() => animations.forEach((animation) => animation.notice())),
  );
}

/** The document is `before` with `regions` shown in it; where it is not, somebody else edited it and has their way. */
export class Animation {
  private readonly before: string;
  private readonly version: number;
  private regions: Region[] = [];
  private writing: Promise<boolean> | undefined;
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
    if (!this.regions.length && this.document.getText() === this.before) {
      this.regions = holes.map(({ range }) => {
        const start = offsetIn(this.before, range.start);
        const old = this.before.slice(start, offsetIn(this.before, range.end));
        return { start, old, now: old };
      });
    }
    const isFirst = this.document.version === this.version;
    const done = await this.write(holes.map((hole) => hole.text), { undoStopBefore: isFirst, undoStopAfter: false });
    if (!done || !this.isOurs()) return void this.stop();
    this.draw(holes);
  }

  /** Puts the fill in for what was shown: all of it is one undo step. False where it is over, the old text back. */
  finish(edits: Edit[]): Promise<boolean> {
    return this.ending ? this.ending.then(() => false) : (this.ending = this.end(edits));
  }

  /** Puts the old text back. What somebody else wrote stays; where they wrote into a hole, all stays as it is. */
  async stop(): Promise<void> {
    await (this.ending ??= this.end());
  }

  notice(): void {
    if (!this.writing && !(this.isOurs() && this.editor)) void this.stop();
  }

  private get editor(): vscode.TextEditor | undefined {
    return vscode.window.visibleTextEditors.find((editor) => editor.document === this.document);
  }

  private get places(): Span[] {
    return placeRegions(this.before, this.regions, showRegions(this.before, this.regions))!;
  }

  private isOurs(): boolean {
    return this.document.getText() === showRegions(this.before, this.regions);
  }

  private async end(edits?: Edit[]): Promise<boolean> {
    await this.writing;
    const texts = edits && fillRegions(this.before, this.regions, edits);
    const done = texts !== undefined && await this.write(texts, { undoStopBefore: false, undoStopAfter: true });
    if (!done) await this.restore();
    animations.delete(this.document.uri.toString());
    this.editor && showGuesses(this.editor, [], []);
    if (!this.document.isClosed && this.document.version !== this.version) this.tell(this.document);
    return done;
  }

  private async restore(): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES && !this.document.isClosed; tries++) {
      const now = this.document.getText();
      const places = placeRegions(this.before, this.regions, now);
      if (now === this.before || !places) return;
      const stops = { undoStopBefore: !this.isOurs(), undoStopAfter: true };
      if (await this.replace(places, this.regions.map((region) => region.old), stops)) return;
    }
    if (!this.document.isClosed) void vscode.window.showWarningMessage("Midfill: Undo brings the old text back.");
  }

  private async write(texts: string[], stops: Stops): Promise<boolean> {
    if (!this.editor || !this.isOurs() || texts.length !== this.regions.length) return false;
    const lines = texts.map((text) => text.replace(/\r\n|\r|\n/g, this.document.eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n"));
    this.writing = this.replace(this.places, lines, stops);
    const done = await this.writing;
    if (done) this.regions = this.regions.map((region, index) => ({ ...region, now: lines[index] }));
    this.writing = undefined;
    return done;
  }

  /** False where the document moved on meanwhile: VS Code takes the edits for the version they were made for only. */
  private async replace(places: Span[], texts: string[], stops: Stops): Promise<boolean> {
    const edits = places.map(([from, to], index) =>
      new vscode.TextEdit(new vscode.Range(this.document.positionAt(from), this.document.positionAt(to)), texts[index]));
    const hidden = new vscode.WorkspaceEdit();
    hidden.set(this.document.uri, edits);
    try {
      if (!this.editor) return await vscode.workspace.applyEdit(hidden);
      return await this.editor.edit((builder) => edits.forEach((edit) => builder.replace(edit.range, edit.newText)), stops);
    } catch {
      return false;
    }
  }

  private draw(holes: PreviewHole[]): void {
    const { places } = this;
    const find = (isFaint: boolean) => holes.flatMap((hole, index) => {
      const { line, character } = this.document.positionAt(places[index][0]);
      const shown = { ...hole, range: { start: { line, character }, end: { line, character } } };
      return findGuesses(hole, isFaint).map(([from, to]) => toRange({ start: locate(shown, from), end: locate(shown, to) }));
    });
    if (this.editor) showGuesses(this.editor, find(false), find(true));
  }
}
