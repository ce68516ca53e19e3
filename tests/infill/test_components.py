"""Scripts of single-file components: what is read of them, and that a fill stays in its script."""

import pytest

from midfill_infill.languages.vue import blank_markup
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_at, find_stubs
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (b"<script>a</script>", [b"a"]),
        (b"<SCRIPT lang='ts'>a</SCRIPT >b", [b"a"]),
        (b'<script setup generic="T extends Map<a, b>">c</script>', [b"c"]),
        (b"<script>a = '<script>'</script><script\nlang=ts\n>b</script>", [b"a = '<script>'", b"b"]),
        (b"<!-- <script>a</script> --><script>b</script>", [b"b"]),
        (b"<script>a // <!-- \n</script><script>b</script><!-- -->", [b"a // <!-- \n", b"b"]),
        (b"<style>a::before { content: '<script>' }</style><script>b</script>", [b"b"]),
        (b"<script type='application/ld+json'>a</script><script type=module>b</script>", [b"b"]),
        (b"<script data-type='json'>a</script>", [b"a"]),
        (b"<script src=a.js /><p>b</p><scripted>c</scripted>", []),
        (b"<script>a", [b"a"]),
        (b"<!-- <script>a</script>", []),
        ("<p>é</p><script>é</script>".encode(), ["é".encode()]),
        (b"", []),
    ],
)
def test_scripts_alone_are_read_at_their_places(source: bytes, read: list[bytes]) -> None:
    blanked = blank_markup(source)
    assert len(blanked) == len(source)
    expected = b" ".join(read)
    assert blanked.split() == expected.split()
    position = 0
    for script in read:
        position = source.index(script, position)
        position = blanked.index(script.rstrip(), position) + len(script.rstrip())


def test_line_ends_stay_where_they_are() -> None:
    source = b"<p>\r\n</p>\r<script>\r\nf()\r\n</script>\n"
    assert [i for i, byte in enumerate(blank_markup(source)) if byte in b"\r\n"] == [
        i for i, byte in enumerate(source) if byte in b"\r\n"
    ]


@pytest.mark.parametrize("language", ["vue", "svelte"])
def test_a_fill_that_ends_its_script_is_an_error(language: str) -> None:
    source = b"<script>\nfunction f() {\n  // TODO\n}\nfunction g() {}\n</script>\n<p>x</p>\n"
    document = Document(source, language)
    (hole,) = find_stubs(document)[:1]
    assert splice(document, [hole], ["return 1"]).new_errors == 0
    assert splice(document, [hole], ["x = '</script>'"]).new_errors > 0


def test_markup_is_no_code() -> None:
    source = b"<p onclick={() => f()}>\n</p>\n<script>\nconst f = () => {\n  g()\n}\n</script>\n"
    document = Document(source, "svelte")
    assert [function.name for function in outline(document).functions] == ["f"]
    hole = body_at(document, source.index(b"g()"))
    assert document.data[hole.start_byte : hole.end_byte] == b"g()"


def test_large_components_are_read_in_time_that_grows_with_them() -> None:
    assert blank_markup(b"<script " * 20_000).strip() == b""
    assert blank_markup(b"<script a='" + b"x " * 200_000).strip() == b""
    assert blank_markup(b"<!-" * 100_000).strip() == b""
