// What is pending where, as the server says, drawn in every editor that shows it. Sends nothing.

import * as vscode from "vscode";
import { isAt, type PendingFill, type Place } from "./layout.ts";
import { showHints, showPending } from "./view.ts";

const fills = new Map<string, PendingFill[]>();

export function fillsOf(uri: string): PendingFill[] {
  return fills.get(uri) ?? [];
}

/** The document of a fill. */
export function findDocument(id: unknown): string | undefined {
  return [...fills].find(([, pending]) => pending.some((fill) => fill.id === id))?.[0];
}

export function takePending(uri: string, now: PendingFill[]): void {
  if (now.length) fills.set(uri, now);
  else fills.delete(uri);
  drawPending();
}

/** A server counts its fills from 1. */
export function forgetPending(): void {
  fills.clear();
  drawPending();
}

/** In all editors: one that was split or shown again has nothing yet. */
export function drawPending(): void {
  const withWeak = vscode.workspace.getConfiguration("midfill").get("confidence") !== "off";
  for (const editor of vscode.window.visibleTextEditors) {
    const own = fillsOf(editor.document.uri.toString());
    showPending(editor, own, withWeak);
    showHints(editor, own);
  }
}

/** The fill at a place: its speed, and what it stands for. */
export function hover(document: vscode.TextDocument, { line, character }: Place): vscode.Hover | undefined {
  const fill = fillsOf(document.uri.toString()).find((fill) => fill.holes.some(({ range }) => isAt(range, { line, character })));
  if (!fill) return undefined;
  const { tokens, steps, ms, cachedContext } = fill.stats;
  const speed = ms > 0 ? `, ${Math.round(tokens * 1000 / ms)} tokens/s` : "";
  const facts = `Midfill: ${tokens} tokens in ${steps} steps, ${Math.round(ms)} ms${speed}${cachedContext ? ", context from the cache" : ""}`;
  const others = fill.alternatives ? `, ${fill.alternatives} alternatives` : "";
  const errors = fill.newErrors ? `, ${fill.newErrors} new syntax error(s)` : "";
  return new vscode.Hover(new vscode.MarkdownString(facts + others + errors));
}
