// Draws with decorations only: a fill while it sharpens, a pending fill, holes that wait. Changes no document.

import * as vscode from "vscode";
import { findWeak, type HoleFill, keepSpaces, layPreview, type PreviewHole, type Range } from "./layout.ts";

const old = vscode.window.createTextEditorDecorationType({ opacity: "0.35" });
const sharpening = vscode.window.createTextEditorDecorationType({});
const pending = vscode.window.createTextEditorDecorationType({
  backgroundColor: new vscode.ThemeColor("diffEditor.insertedTextBackground"),
  rangeBehavior: vscode.DecorationRangeBehavior.OpenOpen,
});
const guesses = vscode.window.createTextEditorDecorationType({ opacity: "0.7", fontStyle: "italic" });
const faint = vscode.window.createTextEditorDecorationType({ opacity: "0.5" });
const weak = vscode.window.createTextEditorDecorationType({ textDecoration: "underline dotted 2px #d7ba7d" });
const waiting = vscode.window.createTextEditorDecorationType({
  border: "1px dashed", borderColor: new vscode.ThemeColor("editorWarning.foreground"),
});

export function toRange(range: Range): vscode.Range {
  return new vscode.Range(range.start.line, range.start.character, range.end.line, range.end.character);
}

function editorsOf(uri: string): vscode.TextEditor[] {
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
          textDecoration: isFaint ? "none; opacity: 0.5" : undefined,
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

/** A pending fill and its weakest tokens; none clears it. */
export function showPending(uri: string, holes: HoleFill[], withWeak: boolean): void {
  for (const editor of editorsOf(uri)) {
    editor.setDecorations(pending, holes.map((hole) => toRange(hole.range)));
    editor.setDecorations(weak, withWeak ? findWeak(holes).map(toRange) : []);
  }
}

export function showHoles(editor: vscode.TextEditor, holes: readonly vscode.Range[]): void {
  editor.setDecorations(waiting, [...holes]);
}
