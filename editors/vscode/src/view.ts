// Draws with decorations only: a fill while it sharpens, a pending fill, holes that wait. Changes no document.

import * as vscode from "vscode";
import { keyOf } from "./keys.ts";
import { keepSpaces, layPreview, type PendingFill, type PreviewHole, type Range, type Repeat, shorten } from "./layout.ts";

const old = vscode.window.createTextEditorDecorationType({ opacity: "0.35" });
const sharpening = vscode.window.createTextEditorDecorationType({});
const pending = vscode.window.createTextEditorDecorationType({
  backgroundColor: new vscode.ThemeColor("diffEditor.insertedTextBackground"),
  rangeBehavior: vscode.DecorationRangeBehavior.OpenOpen,
});
const hints = vscode.window.createTextEditorDecorationType({
  after: { color: new vscode.ThemeColor("editorCodeLens.foreground"), fontStyle: "italic" },
});
const guesses = vscode.window.createTextEditorDecorationType({ opacity: "0.7", fontStyle: "italic" });
const faint = vscode.window.createTextEditorDecorationType({ opacity: "0.7" });
const weak = vscode.window.createTextEditorDecorationType({ textDecoration: "underline dotted 2px #d7ba7d" });
const waiting = vscode.window.createTextEditorDecorationType({
  border: "1px dashed", borderColor: new vscode.ThemeColor("editorWarning.foreground"),
});

const again = vscode.window.createTextEditorDecorationType({});
const replaced = vscode.window.createTextEditorDecorationType({ textDecoration: "line-through", opacity: "0.6" });

export function toRange(range: Range): vscode.Range {
  return new vscode.Range(range.start.line, range.start.character, range.end.line, range.end.character);
}

export function editorsOf(uri: string): vscode.TextEditor[] {
  return vscode.window.visibleTextEditors.filter((editor) => editor.document.uri.toString() === uri);
}

function endOf(document: vscode.TextDocument, line: number): vscode.Range {
  const { end } = document.lineAt(Math.min(line, document.lineCount - 1)).range;
  return new vscode.Range(end, end);
}

/** A step of a fill over the dimmed text that it replaces; none clears it. */
export function showPreview(uri: string, holes: PreviewHole[]): void {
  const shown = holes.flatMap(layPreview);
  for (const editor of editorsOf(uri)) {
    editor.setDecorations(old, holes.map((hole) => toRange(hole.range)));
    editor.setDecorations(sharpening, shown.map(({ line, settled, rest, isFaint }) => ({
      range: endOf(editor.document, line),
      renderOptions: {
        before: { contentText: keepSpaces(` ▸ ${settled}`), color: new vscode.ThemeColor("editor.foreground") },
        after: {
          contentText: keepSpaces(rest), color: new vscode.ThemeColor("editorGhostText.foreground"), fontStyle: "italic",
          textDecoration: isFaint ? "none; opacity: 0.75" : undefined,
        },
      },
    })));
  }
}

/** The guesses of a fill that sharpens in the buffer, and those of them that are unlikely. */
export function showGuesses(editor: vscode.TextEditor, guessed: vscode.Range[], unlikely: vscode.Range[]): void {
  editor.setDecorations(guesses, guessed);
  editor.setDecorations(faint, unlikely);
}

/** Pending fills and their weakest tokens; none clears them. */
export function showPending(editor: vscode.TextEditor, fills: PendingFill[], withWeak: boolean): void {
  editor.setDecorations(pending, fills.flatMap((fill) => fill.holes.map((hole) => toRange(hole.range))));
  editor.setDecorations(weak, withWeak ? fills.flatMap((fill) => fill.weak.map(toRange)) : []);
}

/** What can be done with each pending fill, beside its first line, with the keys that do it. */
export function showHints(editor: vscode.TextEditor, fills: PendingFill[]): void {
  const actions = { acceptFill: "keep", discardFill: "put back", rerollFill: "again", nextFill: "next", showOld: "old" };
  const known = Object.entries(actions).map(([name, word]) => [keyOf(`midfill.${name}`), word]).filter(([key]) => key);
  const keys = known.map(([key, word]) => `${key} ${word}`).join("  ·  ");
  const say = (fill: PendingFill) => {
    const remarks = [
      fill.passes && `✓ passes ${shorten(fill.passes)}`,
      fill.holes.some((hole) => hole.isSuggestion) && "a suggestion",
      ...new Set(fill.holes.map((hole) => shorten(hole.origin ?? ""))),
    ].filter(Boolean).map((remark) => `  ·  ${remark}`);
    return keepSpaces(`   ${keys}${remarks.join("")}`);
  };
  editor.setDecorations(hints, fills.filter((fill) => fill.holes.length && known.length).map((fill) => ({
    range: endOf(editor.document, fill.holes[0].range.start.line), renderOptions: { after: { contentText: say(fill) } },
  })));
}

export function showHoles(editor: vscode.TextEditor, holes: readonly vscode.Range[]): void {
  editor.setDecorations(waiting, [...holes]);
}

/** Where the last change may be made again: the old text struck through, the new one behind it, the key at the first. */
export function showRepeats(editor: vscode.TextEditor, places: readonly Repeat[]): void {
  const key = keyOf("midfill.nextEdit");
  editor.setDecorations(replaced, places.map((place) => toRange(place.range)));
  editor.setDecorations(again, places.map(({ range, text }, index) => {
    const { end } = toRange(range);
    const shown = text.split("\n")[0] + (index || !key ? "" : `   ${key}`);
    const after = { contentText: keepSpaces(shown), color: new vscode.ThemeColor("editorGhostText.foreground"), fontStyle: "italic" };
    return { range: new vscode.Range(end, end), renderOptions: { after } };
  }));
}
