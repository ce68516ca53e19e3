"""Draws what a terminal showed as an animated picture (SVG). Knows lines with colours, not who wrote them."""

import html

from rich.color import ColorType
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

CHAR_WIDTH, LINE_HEIGHT, MARGIN = 9.64, 21, 12
MAX_REST_S = 2.2

Frame = tuple[float, tuple[str, ...]]  # when it was shown, in seconds; the lines


def draw(frames: list[Frame], columns: int, lines: int) -> str:
    """Every different line once; a frame says which lines it shows, a style sheet when it is there."""
    starts = [0.0]
    for (before_s, _), (now_s, _) in zip(frames, frames[1:], strict=False):
        starts.append(starts[-1] + min(now_s - before_s, MAX_REST_S))
    length_s = starts[-1] + MAX_REST_S
    rows: dict[str, str] = {}
    styles, groups = [], []
    for index, (start_s, (_, shown)) in enumerate(zip(starts, frames, strict=True)):
        first, last = 100 * start_s / length_s, 100 * ([*starts, length_s][index + 1]) / length_s
        seen = f"{first:.2f}%{{visibility:visible}}" + (f"{last:.2f}%{{visibility:hidden}}" if last < 99.99 else "")
        styles.append(f"@keyframes k{index}{{0%{{visibility:{'hidden' if index else 'visible'}}}{seen}}}")
        styles.append(f"#f{index}{{animation:k{index} {length_s:.2f}s step-end infinite}}")
        uses = []
        for number, line in enumerate(shown):
            if drawn := draw_line(line):
                row = rows.setdefault(drawn, f"r{len(rows)}")
                uses.append(f'<use href="#{row}" y="{MARGIN + LINE_HEIGHT * number}"/>')
        groups.append(f'<g id="f{index}" class="f">{"".join(uses)}</g>')
    width, height = columns * CHAR_WIDTH + 2 * MARGIN, lines * LINE_HEIGHT + 2 * MARGIN
    defs = "".join(f'<g id="{name}">{drawn}</g>' for drawn, name in rows.items())
    return (
        f'<svg viewBox="0 0 {width:.0f} {height}" xmlns="http://www.w3.org/2000/svg"><style>'
        "text{font:16px monospace;white-space:pre}.f{visibility:hidden}"
        f"{''.join(styles)}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none!important}"
        f"#f{len(frames) - 1}{{visibility:visible}}}}"
        f'</style><defs>{defs}</defs><rect width="100%" height="100%" rx="8" fill="#1c1c1c"/>{"".join(groups)}</svg>\n'
    )


def draw_line(line: str) -> str:
    """One line of a terminal, its top at 0; empty where there is nothing to see."""
    text = Text.from_ansi(line)
    drawn = []
    edges = sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))})
    for start, end in zip(edges, edges[1:], strict=False):
        spans = [span.style for span in text.spans if isinstance(span.style, Style) and span.start <= start < span.end]
        style = Style.combine([Style.null(), *spans])
        part = text.plain[start:end]
        x, width = MARGIN + CHAR_WIDTH * start, CHAR_WIDTH * len(part)
        fill, back = paint(style, foreground=True), paint(style, foreground=False)
        if style.reverse:
            fill, back = back or "#1c1c1c", fill
        if back and back != "#1c1c1c":
            drawn.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{LINE_HEIGHT}" fill="{back}"/>')
        if part.strip():
            extra = ' font-weight="bold"' if style.bold else ""
            extra += ' font-style="italic"' if style.italic else ""
            extra += ' text-decoration="underline"' if style.underline or style.underline2 else ""
            drawn.append(
                f'<text x="{x:.1f}" y="16" textLength="{width:.1f}" fill="{fill}"{extra}>{html.escape(part)}</text>'
            )
    return "".join(drawn)


def paint(style: Style, *, foreground: bool) -> str:
    color = style.color if foreground else style.bgcolor
    if color is None or color.type is ColorType.DEFAULT:
        return "#bcbcbc" if foreground else ""
    return color.get_truecolor(DIMMED_MONOKAI, foreground).hex
