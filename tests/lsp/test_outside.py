"""An editor over an engine of another project: a fill, and another one, which cannot keep what was sure."""

import pytest
from tests.infill.test_outside import serve
from tests.lsp.conftest import Start
from tests.lsp.editor import REAL
from tests.lsp.test_editing import SOURCE, body

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_editor_fills_and_fills_again(start: Start) -> None:
    with serve("llamacpp") as server:
        server.parts = ["return a", " + ", "#"]
        editor = await start(REAL, MIDFILL_ENGINE=f"llamacpp:{server.url}")
        buffer = editor.open(SOURCE)
        result = await editor.do("fill", **body(buffer))
        assert "return a + 1" in buffer.text.source and "certainty" not in result["holes"][0]
        again = await editor.do("reroll", id=result["id"])
        assert "return a + 2" in buffer.text.source and again["model"] == "llamacpp:m"
        assert server.asked[0]["temperature"] == 0 < server.asked[1]["temperature"]
