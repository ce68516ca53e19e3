// What to draw where: pure functions over texts, lines and columns. Knows no editor.

export type Span = [number, number];
export interface Place { line: number; character: number }
export interface Range { start: Place; end: Place }
/** `confidence[i]` belongs to `tokens[i]`; both are missing where the engine does not say. */
export interface PreviewHole { range: Range; text: string; settled: Span[]; masked: number; tokens?: Span[]; confidence?: number[] }
export interface HoleFill { range: Range; text: string; tokens: Span[]; confidence: number[] }
/** What a line shows: a beginning that is settled, and the rest, of which most may be unlikely. */
export interface ShownLine { line: number; settled: string; rest: string; isFaint: boolean }
/** A part of a text: `old` stands at `start`, `now` is shown in its place. Ascending where there are several. */
export interface Region { start: number; old: string; now: string }
export interface Edit { range: Range; newText: string }

const WEAK_SHARE = 0.1;
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

/** `text` with what its regions show. */
export function showRegions(text: string, regions: Region[]): string {
  return regions.reduceRight((shown, { start, old, now }) => shown.slice(0, start) + now + shown.slice(start + old.length), text);
}

/** Where the regions are in `actual`, the text that shows them after any edit; undefined where it changed one of them. */
export function placeRegions(text: string, regions: Region[], actual: string): Span[] | undefined {
  const shown = showRegions(text, regions);
  const shorter = Math.min(shown.length, actual.length);
  const count = (isSame: (index: number) => boolean, most: number) => {
    let index = 0;
    while (index < most && isSame(index)) index++;
    return index;
  };
  const head = count((index) => shown[index] === actual[index], shorter);
  const tail = count((index) => shown.at(-1 - index) === actual.at(-1 - index), shorter);
  // Where what was typed is what stood there anyway, the edit may be taken for one further left.
  return place(regions, head, shown.length - Math.min(tail, shorter - head), actual.length - shown.length)
    ?? place(regions, Math.min(head, shorter - tail), shown.length - tail, actual.length - shown.length);
}

/** Where they are when from `start` to `end` something was replaced by what is `grown` longer. */
function place(regions: Region[], start: number, end: number, grown: number): Span[] | undefined {
  let shift = 0;
  const places = regions.map((region): Span => {
    const from = region.start + shift;
    shift += region.now.length - region.old.length;
    return [from, from + region.now.length];
  });
  if (places.some(([from, to]) => start < to && end > from)) return undefined;
  return places.map(([from, to]) => (end <= from ? [from + grown, to + grown] : [from, to]));
}

/** What the regions hold once edits of `text` are made; undefined where one lies outside of them. */
export function fillRegions(text: string, regions: Region[], edits: Edit[]): string[] | undefined {
  const spans = edits.map(({ range, newText }) => ({ from: offsetIn(text, range.start), to: offsetIn(text, range.end), newText }));
  const inside = regions.map(({ start, old }) => spans.filter(({ from, to }) => start <= from && to <= start + old.length));
  if (inside.flat().length !== spans.length) return undefined;
  return regions.map(({ start, old }, index) =>
    showRegions(old, inside[index].map(({ from, to, newText }) => ({ start: from - start, old: text.slice(from, to), now: newText }))));
}

/** The offset of a place in a text. */
export function offsetIn(text: string, place: Place): number {
  const ends = /\r\n|\r|\n/g;
  for (let line = 0; line < place.line && ends.exec(text); line++);
  return ends.lastIndex + place.character;
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
export function locate(hole: { range: Range; text: string }, offset: number): Place {
  const before = hole.text.slice(0, offset).split("\n");
  const { line, character } = hole.range.start;
  const column = before[before.length - 1].length;
  return { line: line + before.length - 1, character: before.length === 1 ? character + column : column };
}

/** Spaces that a style sheet would swallow. */
export function keepSpaces(text: string): string {
  return text.replace(/ /g, "\u00a0").replace(/\t/g, "\u00a0\u00a0\u00a0\u00a0");
}
