"""An editor over an engine of another project: a fill, and another one, which cannot keep what was sure."""

import pytest
from tests.infill.stand_in import serve
from tests.lsp.editor import REAL, SOURCE, Start, body, configure

HALF = "def half(price):\n    \n    return half\n"
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


@pytest.mark.parametrize("protocol", ["llamacpp", "fim"])
async def test_ghost_text_of_an_engine_without_a_certainty(start: Start, protocol: str) -> None:
    """llama.cpp's server gives each token a log-probability, here -0.5; a FIM service gives none."""
    with serve(protocol) as server:
        editor = await start(REAL, MIDFILL_ENGINE=f"{protocol}:m@{server.url}")

        async def suggest(*parts: str, least: float | None = None) -> list[str]:
            server.parts = list(parts)
            configure(editor, debounceMs=0, ghostTextLogProbability=least)
            buffer = editor.open(HALF, uri=f"untitled:{len(server.asked)}")
            return await editor.suggest(buffer, HALF.index("\n", 20))

        assert await suggest("half = price", " / 2") == ["half = price / 2"]
        assert await suggest("half = price", " / 2", least=-0.6) == ["half = price / 2"]
        assert await suggest("half = price", " / 2", least=-0.4) == (
            [] if protocol == "llamacpp" else ["half = price / 2"]
        )
        for nothing in ("half = price)", "# half of it", "pass", "return half", "  "):
            assert await suggest(nothing) == [], nothing
