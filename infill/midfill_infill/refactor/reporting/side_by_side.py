"""A report of a run as one HTML file without scripts or links: old and new side by side. Knows rows, no terminal."""

import re
from collections.abc import Iterator
from difflib import HtmlDiff
from html import escape
from typing import Final

from midfill_infill.candidates import describe_certainty
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import HAS_FILL
from midfill_infill.refactor.reporting.export import Exported, exported

# Anchors and links from change to change, numbered through the life of the process, and what style sheets do better.
_EXTRAS: Final = re.compile(
    r' (?:id|nowrap|cellspacing|cellpadding|rules|groups)="[^"]*"|<td class="diff_next".*?</td>'
)
_STYLE = """
:root { color-scheme: light dark; --add: #1a7f3733; --del: #cf222e33; --chg: #bf870033; --edge: #8884 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
table.diff { font: 13px/1.4 ui-monospace, monospace; border-collapse: collapse; width: 100%; table-layout: fixed;
  border: 1px solid var(--edge); margin-bottom: 1rem }
.diff td { white-space: pre-wrap; overflow-wrap: anywhere; vertical-align: top; padding: 0 .4rem }
.diff_header { width: 3rem; text-align: right; opacity: .5 } .diff_next { display: none }
.diff_add { background: var(--add) } .diff_sub { background: var(--del) } .diff_chg { background: var(--chg) }
table.counts td { padding: .1rem 1rem .1rem 0 } h2 { font: 600 15px ui-monospace, monospace; margin-top: 2rem }
.note { opacity: .7 } colgroup { display: none }
"""


def html_report(journal: Journal) -> Iterator[str]:
    """The page in pieces. Every byte of source and every name is escaped."""
    run = escape(str(journal.get_meta("run")))
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>midfill {run}</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>Run {run}</h1>"
    yield '<table class="counts">'
    for state, number in sorted(journal.counts().items()):
        yield f"<tr><td>{escape(state)}</td><td>{number}</td></tr>"
    yield "</table>\n"
    differ = HtmlDiff(tabsize=4)
    for one in exported(journal, HAS_FILL):
        yield from _file(one, differ)
    yield "</body></html>\n"


def _file(one: Exported, differ: HtmlDiff) -> Iterator[str]:
    yield f"<h2>{escape(one.file.path)}</h2>\n<ul>"
    for hole, fill in one.fills:
        line, _ = one.document.position_at(hole.start_byte)
        errors = f", adds {fill.new_errors} syntax errors" if fill.new_errors else ""
        reason = f" ({escape(hole.reason)})" if hole.reason else ""
        name = escape(hole.name or hole.kind)
        yield f"<li>line {line}, {name}: {escape(hole.state)}{reason} "
        yield f'<span class="note">{describe_certainty(fill.certainty)}{errors}</span></li>'
    yield "</ul>\n"
    old, new = (data.decode(one.document.encoding, "replace").split("\n") for data in (one.before, one.after))
    yield _EXTRAS.sub("", differ.make_table(old, new, context=True, numlines=3)) + "\n"
