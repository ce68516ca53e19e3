// What to draw where: pure functions over texts, lines and columns. Knows no editor.

export type Span = [number, number];
export interface Place { line: number; character: number }
export interface Range { start: Place; end: Place }
/** `confidence[i]` belongs to `tokens[i]`; both are missing where the engine does not say. */
export interface PreviewHole { range: Range; text: string; settled: Span[]; masked: number; tokens?: Span[]; confidence?: number[] }
export interface Stats { steps: number; tokens: number; ms: number; cachedContext?: boolean }
/** A pending fill: where its texts stand, what stood there, its weakest tokens, what is no syntax in it. */
export interface PendingFill {
  id: number; holes: { range: Range; original: string; hunks: { range: Range; text: string }[]; isSuggestion?: boolean; origin?: string }[]; weak: Range[]; errors: Range[]; newErrors: number; passes?: string; alternatives: number; lengths?: string[]; stats: Stats;
}
/** Where the last change may be made again: `text` would go to `range`. */
export interface Repeat { range: Range; text: string }
/** What a line shows: a beginning that is settled, and the rest, of which most may be unlikely. */
export interface ShownLine { line: number; settled: string; rest: string; isFaint: boolean }
/** A part of a text, `old` at offset `start`, in whose place `now` is shown, at present at offset `at`. */
export interface Region { start: number; old: string; at: number; now: string }
/** `length` characters at `offset` became `text`. */
export interface Change { rangeOffset: number; rangeLength: number; text: string }
export interface Edit { range: Range; newText: string }

const UNLIKELY = 0.5;

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
    const open: Span = [offset + skipped + length, offset + text.length];
    const numFaint = findGuesses(hole, true).reduce((sum, guess) => sum + overlap(guess, open), 0);
    const isFaint = numFaint > overlap(open, open) / 2;
    if (isJoined && (before.rest || length < content.length)) {
      before.rest += " ⏎ " + content;
      before.isFaint &&= isFaint;
    } else if (isJoined) {
      before.settled += " ⏎ " + settled;
    } else {
      shown.push({ line, settled, rest: content.slice(length), isFaint });
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

/** Where a preview's guesses are; with `isFaint` those tokens alone that are less likely than not. */
export function findGuesses(hole: PreviewHole, isFaint: boolean): Span[] {
  const edges = [0, ...hole.settled.flat(), hole.text.length];
  const gaps = edges.flatMap((edge, index) => (index % 2 || edge >= edges[index + 1] ? [] : [[edge, edges[index + 1]] as Span]));
  if (!isFaint) return gaps;
  const unlikely = (hole.tokens ?? []).filter((_, index) => (hole.confidence?.[index] ?? 1) < UNLIKELY);
  return unlikely.filter((token) => gaps.some((gap) => overlap(gap, token) > 0));
}

function overlap(one: Span, other: Span): number {
  return Math.max(0, Math.min(one[1], other[1]) - Math.max(one[0], other[0]));
}

/** The regions with other texts in them. */
export function rewrite(regions: Region[], texts: string[]): Region[] {
  let grown = 0;
  return regions.map((region, index) => {
    const at = region.at + grown;
    grown += texts[index].length - region.now.length;
    return { ...region, at, now: texts[index] };
  });
}

/** The regions after changes made at once by somebody else; undefined where one of these reaches into a region. */
export function follow(regions: Region[], changes: readonly Change[]): Region[] | undefined {
  const isInside = ({ at, now }: Region) => changes.some((change) =>
    change.rangeOffset < at + now.length && change.rangeOffset + change.rangeLength > at);
  if (regions.some(isInside)) return undefined;
  return regions.map((region) => {
    const before = changes.filter((change) => change.rangeOffset + change.rangeLength <= region.at);
    return { ...region, at: before.reduce((at, change) => at + change.text.length - change.rangeLength, region.at) };
  });
}

const isBefore = (one: Place, other: Place) => one.line < other.line || (one.line === other.line && one.character < other.character);

/** Where a range is after a change elsewhere; undefined where the change touches it. */
export function shift(range: Range, change: { range: Range; text: string }): Range | undefined {
  const { start, end } = change.range;
  if (isBefore(range.end, start)) return range;
  if (!isBefore(end, range.start)) return undefined;
  const lines = change.text.split(/\r\n|\r|\n/);
  const behind = lines[lines.length - 1].length + (lines.length === 1 ? start.character : 0) - end.character;
  const move = ({ line, character }: Place): Place =>
    ({ line: line + lines.length - 1 - (end.line - start.line), character: line === end.line ? character + behind : character });
  return { start: move(range.start), end: move(range.end) };
}

/** What the regions hold once edits of `text` are made; undefined where one lies outside of them. */
export function fillRegions(text: string, regions: Region[], edits: Edit[]): string[] | undefined {
  const spans = edits.map(({ range, newText }) => ({ from: offsetIn(text, range.start), to: offsetIn(text, range.end), newText }));
  const inside = regions.map(({ start, old }) => spans.filter(({ from, to }) => start <= from && to <= start + old.length));
  if (inside.flat().length !== spans.length) return undefined;
  return regions.map(({ start, old }, index) => inside[index].reduceRight(
    (filled, { from, to, newText }) => filled.slice(0, from - start) + newText + filled.slice(to - start), old));
}

/** The text with the old lines of all hunks. */
export function putBack(text: string, fills: PendingFill[]): string {
  const hunks = fills.flatMap((fill) => fill.holes.flatMap((hole) => hole.hunks));
  const edits = hunks.map(({ range, text: old }) => ({ from: offsetIn(text, range.start), to: offsetIn(text, range.end), old }));
  return edits.sort((one, other) => other.from - one.from).reduce((now, { from, to, old }) => now.slice(0, from) + old + now.slice(to), text);
}

/** The offset of a place in a text. */
export function offsetIn(text: string, place: Place): number {
  const ends = /\r\n|\r|\n/g;
  for (let line = 0; line < place.line && ends.exec(text); line++);
  return ends.lastIndex + place.character;
}

/** Whether a range holds a place, its ends included. */
export function isAt({ start, end }: Range, place: Place): boolean {
  return !isBefore(place, start) && !isBefore(end, place);
}

/** Where an offset of a fill's text stands in the document. */
export function locate(hole: { range: Range; text: string }, offset: number): Place {
  const before = hole.text.slice(0, offset).split("\n");
  const { line, character } = hole.range.start;
  const column = before[before.length - 1].length;
  return { line: line + before.length - 1, character: before.length === 1 ? character + column : column };
}

/** A text of at most 40 characters: its middle gives way, since names begin and end with what tells them apart. */
export function shorten(text: string): string {
  const chars = [...text];
  return chars.length <= 40 ? text : `${chars.slice(0, 22).join("")}…${chars.slice(-17).join("")}`;
}

/** Spaces that a style sheet would swallow. */
export function keepSpaces(text: string): string {
  return text.replace(/ /g, "\u00a0").replace(/\t/g, "\u00a0\u00a0\u00a0\u00a0");
}
