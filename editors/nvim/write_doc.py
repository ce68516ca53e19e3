"""Writes doc/midfill.txt from the plugin's source: `python editors/nvim/write_doc.py`; `--check` only compares."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "doc" / "midfill.txt"
COMMANDS = {
    "body": "fill the body of the function at the cursor; the same as :Midfill alone",
    "selection": "fill the visual selection, or the line of the cursor",
    "stubs": "fill all stubs of the file jointly",
    "hole": "fill at the cursor",
    "tests": "fill the body until a command passes; asks which, once for a workspace",
    "other_tests": "the same with another command",
    "add": "remember the selection, or the cursor, as a hole",
    "holes": "fill all remembered holes jointly",
    "widen": "show the next larger hole around the cursor; :Midfill holes fills it",
    "shrink": "show the next smaller one, at last none",
    "snooze": "no ghost text for five minutes",
    "wake": "ghost text again",
    "accept": "keep the fill at the cursor, else the latest of the buffer",
    "discard": "put back what was there before the pending fill",
    "accept_hole": "keep the hole at the cursor alone; its fill's others stay pending",
    "discard_hole": "put back what was in the hole at the cursor alone",
    "accept_hunk": "keep the changed lines at the cursor alone",
    "discard_hunk": "put back the changed lines at the cursor alone",
    "old": "show what stood there before the pending fills, or hide it",
    "reroll": "fill again; the surest part and what was typed stay",
    "shorter": "fill again with fewer lines or tokens",
    "longer": "fill again with more lines or tokens",
    "next": "show the next alternative",
    "finish": "end the running fill now, with its present guesses",
    "cancel": "stop the fill that runs at the cursor, else the latest of the buffer",
    "next_edit": "make the last change again where it fits the cursor's line, and go to the next such place",
    "all_edits": "make the last change again wherever it fits",
    "dismiss": "forget the last change",
    "install": "install the server, update it or repair it, in Neovim's data folder; its model too",
    "uninstall": "remove what :Midfill install made",
    "cancel_install": "stop an installation; nothing of it stays",
    "status": "what the server last said of itself",
}


def render() -> str:
    source = (HERE / "lua/midfill/init.lua").read_text(encoding="utf-8")
    marks = (HERE / "lua/midfill/marks.lua").read_text(encoding="utf-8")
    config = (HERE / "lsp/midfill.lua").read_text(encoding="utf-8")
    listed = re.search(r"local subcommands = \{\n(.*?)\n\}\n.*?ipairs\(\{ (.*?) \}\)", source, re.DOTALL)
    assert listed
    known = set(re.findall(r"^  (\w+) =", listed[1], re.MULTILINE)) | set(re.findall(r"'(\w+)'", listed[2]))
    assert known == COMMANDS.keys(), f"the help does not know {known ^ COMMANDS.keys()}"
    options = re.findall(r"---@field (\w+)\? \w+ (.*)", source)
    functions = re.findall(r"((?:^---? .*\n)+)function M\.(\w+)\((.*?)\)", source, re.MULTILINE)
    groups = re.findall(r"nvim_set_hl\(0, '(\w+)'", marks)
    filetypes = re.findall(r"'(\w+)'", re.search(r"filetypes = \{(.*?)\}", config, re.DOTALL)[1])  # type: ignore[index]
    parts = [
        _section("midfill", "Fills gaps in code with a language model that runs on your machine."),
        "Needs Neovim 0.11 or newer. Put this folder on 'runtimepath'; :Midfill install installs the server where the\n"
        "command `midfill` is not on your path.\n"
        f"It starts the server for {', '.join(filetypes)}.\n"
        "See |:checkhealth| midfill. Change how the server runs, and its settings, with\n>lua\n"
        "    vim.lsp.config('midfill', { settings = { midfill = { device = 'cpu' } } })\n<\n",
        _section("midfill-commands", "COMMANDS"),
        "".join(f":Midfill {name:<15}{text}\n" for name, text in COMMANDS.items()),
        _section("midfill-options", "OPTIONS"),
        "Keys of the table |g:midfill|, set before the plugin loads.\n\n",
        "".join(f"{name:<15}{text}\n" for name, text in options),
        _section("midfill-functions", "FUNCTIONS"),
        "".join(f"require('midfill').{name}({args})\n{_comment(text)}\n" for text, name, args in functions),
        _section("midfill-highlights", "HIGHLIGHTS"),
        "".join(f"{group}\n" for group in groups),
        "\nvim:tw=100:ft=help:norl:\n",
    ]
    return "\n".join(parts)


def _section(tag: str, title: str) -> str:
    return "=" * 100 + f"\n{title:<60}{f'*{tag}*':>40}\n"


def _comment(text: str) -> str:
    return "".join(f"    {line.lstrip('-').strip()}\n" for line in text.splitlines())


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != render() and "run: python editors/nvim/write_doc.py")
    PAGE.write_text(render(), encoding="utf-8")
