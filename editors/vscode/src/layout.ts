// What to draw where: pure functions over texts, lines and columns. Knows no editor.

export type Span = [number, number];
export interface Place { line: number; character: number }
export interface Range { start: Place; end: Place }
export interface PreviewHole { range: Range; text: string; settled: Span[]; masked: number }
export interface HoleFill { range: Range; text: string; tokens: Span[]; confidence: number[] }
/** What a line shows: a beginning that is settled, and the rest. */
export interface ShownLine { line: number; settled: string; rest: string }

const WEAK_SHARE = 0.1;

/** The lines of a preview, each on a line of its hole; what has no line of its own is joined to the last one's. */
export function layPreview(hole: PreviewHole): ShownLine[] {
  const shown: ShownLine[] = [];
  let offset = 0;
  for (const [index, text] of hole.text.split("\n").entries()) {
    const line = Math.min(hole.range.start.line + index, hole.range.end.line);
    const before = shown.at(-1);
    const isJoined = before?.line === line;
    const skipped = index && !isJoined ? 0 : text.length - text.trimStart().length;
    const length = Math.max(settledFrom(hole.settled, offset + skipped) - offset - skipped, 0);
    const content = text.slice(skipped);
    const settled = content.slice(0, length);
    if (isJoined && (before.rest || length < content.length)) {
      before.rest += " ⏎ " + content;
    } else if (isJoined) {
      before.settled += " ⏎ " + settled;
    } else {
      shown.push({ line, settled, rest: content.slice(length) });
    }
    offset += text.length + 1;
  }
  return shown;
}

/** How far the text is settled without a gap, from `start` on. */
function settledFrom(spans: Span[], start: number): number {
  let position = start;
  for (const [from, to] of spans) {
    if (from <= position) position = Math.max(position, to);
  }
  return position;
}

/** Where the weakest tenth of the tokens of all holes stand in the document. */
export function findWeak(holes: HoleFill[], share = WEAK_SHARE): Range[] {
  const tokens = holes.flatMap((hole) =>
    hole.tokens.map((span, index) => ({ hole, span, confidence: hole.confidence[index] ?? 1 })));
  tokens.sort((one, other) => one.confidence - other.confidence);
  return tokens.slice(0, Math.ceil(tokens.length * share)).map(({ hole, span }) => ({
    start: locate(hole, span[0]), end: locate(hole, span[1]),
  }));
}

/** Where an offset of a fill's text stands in the document. */
export function locate(hole: HoleFill, offset: number): Place {
  const before = hole.text.slice(0, offset).split("\n");
  const { line, character } = hole.range.start;
  const column = before[before.length - 1].length;
  return { line: line + before.length - 1, character: before.length === 1 ? character + column : column };
}

/** Spaces that a style sheet would swallow. */
export function keepSpaces(text: string): string {
  return text.replace(/ /g, "\u00a0").replace(/\t/g, "\u00a0\u00a0\u00a0\u00a0");
}
