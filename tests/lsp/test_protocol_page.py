"""PROTOCOL.md says what the code does: its tables are generated, and every name in its prose exists."""

import importlib.util
import re
from types import ModuleType

import pytest
from tests.lsp.editor import ROOT

from midfill_lsp import messages
from midfill_lsp.progress import PREVIEWS_PER_S
from midfill_lsp.server import MidfillServer
from midfill_lsp.settings import RULES


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_protocol", ROOT / "lsp/write_protocol.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_code(writer: ModuleType) -> None:
    page = writer.PAGE.read_text(encoding="utf-8")
    assert writer.fill_in(page) == page, "run: python lsp/write_protocol.py"
    assert set(re.findall("<!-- begin (.*) -->", page)) == writer.render().keys()


def test_every_message_is_handled_and_every_name_in_the_prose_exists(writer: ModuleType) -> None:
    server = MidfillServer()
    handled = {name for name in server.protocol.fm.features if name.startswith("midfill/")}
    assert handled == messages.REQUESTS.keys()
    assert server.protocol.fm.commands.keys() == messages.COMMANDS.keys()
    page = writer.PAGE.read_text(encoding="utf-8")
    own = set(re.findall(r"`(midfill[./]\w+)`", page))
    settings = {f"midfill.{rule.key}" for rule in RULES.values()}
    known = messages.REQUESTS.keys() | messages.NOTIFICATIONS.keys() | messages.COMMANDS.keys() | settings
    assert own == known
    assert f"at most {PREVIEWS_PER_S} times a second" in page
    for standard in re.findall(r"`((?:textDocument|workspace)/\w+)`", page):
        sent = ("workspace/applyEdit", "workspace/configuration", "textDocument/publishDiagnostics")
        assert standard in sent or standard in {**server.protocol.fm.features, **server.protocol.fm.builtin_features}
