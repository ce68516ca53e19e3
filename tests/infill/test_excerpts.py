"""Excerpts: what is like the text around a hole is shown, what every model reads anyway is not."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from midfill_infill.context.excerpts import LINES, MAX_CHARACTERS, MORE_LINES, NEAR, find_excerpts
from midfill_infill.syntax.holes import body_named
from midfill_infill.text.document import Document

BEFORE = "def total(path):\n    rows = parse_invoice(path)\n    "


def find_texts(shown: Sequence[str], references: Sequence[str]) -> list[str]:
    return [each.text for each in find_excerpts(shown, references)]


def test_lines_that_share_rare_words_are_shown() -> None:
    invoice = "def parse_invoice(path):\n    return path\n"
    circle = "canvas.draw_circle(radius)\n"
    assert find_texts([BEFORE, "\n"], [circle, invoice]) == [invoice.strip()]
    assert find_texts([BEFORE, "\n"], [circle]) == []
    assert find_texts(["", ""], [invoice]) == []


def test_far_lines_of_the_file_are_shown_and_near_ones_are_not() -> None:
    call = "    rows = parse_invoice(other)\n    return sum(row.price for row in rows)\n"
    filler = "".join(f"name_{number} = {number}\n" for number in range(300))
    (found,) = find_texts([call + filler + BEFORE, "\n"], [])
    assert "sum(row.price for row in rows)" in found
    assert find_texts([filler[-NEAR // 2 :] + call + BEFORE, "\n" + call], []) == []


def test_far_lines_are_whole_and_the_last_one_is_among_them() -> None:
    filler = "".join(f"name_{number} = {number}\n" for number in range(300))
    (found,) = find_texts([BEFORE, "\n" + filler + "last = parse_invoice(1)\x0c(2)\n"], [])
    assert found.endswith("last = parse_invoice(1)\x0c(2)")
    cut = ("other = parse_invoice(1)\x0c" * NEAR)[: NEAR + 100]
    assert not any("invoice" in text for text in find_texts([BEFORE, cut + "\n" + filler], []))


def test_words_of_lines_that_are_not_shown_do_not_count() -> None:
    assert find_texts([BEFORE, "\n"], ["# parse_invoice \udcff\n"]) == []


def test_the_next_line_of_a_place_that_is_alike_is_in_view() -> None:
    rows = [f"number_{index} = {index}" for index in range(60)]
    rows[30:32] = ["    rows = parse_invoice(other)", "    return the_answer"]
    (found,) = find_texts([BEFORE, "\n"], ["\n".join(rows)])
    assert "return the_answer" in found and found.count("\n") < LINES + MORE_LINES


def test_files_keep_their_order_whatever_their_scores() -> None:
    one, two = (f"def parse_invoice_{name}(path):\n    return parse_invoice(path)\n" for name in ("one", "two"))
    assert find_texts([BEFORE, "\n"], [one, two]) == [one.strip(), two.strip()]
    assert find_texts([BEFORE, "\n"], [two, one]) == [two.strip(), one.strip()]


@given(st.lists(st.text("ab_ \n", max_size=4000), min_size=2, max_size=4), st.lists(st.text("ab_ \n", max_size=3000)))
def test_excerpts_are_bounded_and_copied(shown: list[str], references: list[str]) -> None:
    found = find_texts(shown, references)
    assert sum(map(len, found)) <= MAX_CHARACTERS
    assert all(any(each in source for source in (*references, *shown)) for each in found)


def test_excerpts_stay_while_a_line_is_typed() -> None:
    rows = "".join(f"name_{number} = parse_{number}(rows)\n" for number in range(90))
    typed = "    total = parse_7(name_8)"
    assert len({tuple(find_texts([BEFORE + typed[:end], "\n"], [rows])) for end in range(len(typed))}) == 1


def test_an_excerpt_from_behind_stays_while_the_hole_moves_down() -> None:
    rows = [f"name_{number} = {number}" for number in range(300)]
    rows[200:202] = ["    rows = parse_invoice(other)", "    return the_answer"]
    before = ["def total(path):", "    rows = parse_invoice(path)"]

    def find(line: int) -> list[str]:
        return find_texts(["\n".join([*before, *rows[:line], ""]), "\n" + "\n".join(rows[line:])], [])

    found = {tuple(find(line)) for line in range(10)}
    assert len(found) == 1 and "return the_answer" in str(found)


USE = "rows = parse_invoice(other)\nparse_invoice_answer\n"
OTHER_USE = "draw_circle(canvas)\ndraw_circle_answer\n"


def test_the_excerpts_of_the_last_request_stay_in_their_order_while_they_are_nearly_as_good() -> None:
    """So that the next prompt begins as the last one did."""
    references = [USE, OTHER_USE, USE.replace("other", "another")]
    last = find_texts([BEFORE, "\n"], references)
    assert len(last) == 2
    for order in (last, last[::-1]):
        found = find_excerpts([BEFORE + "total = 0\n    ", "\n"], references[::-1], last=order)
        assert [each.text for each in found] == order
        assert [each.text in references[::-1][each.source] for each in found] == [True, True]


def test_the_excerpts_of_the_last_request_go_if_others_are_better() -> None:
    last = find_texts([BEFORE, "\n"], [USE, OTHER_USE])
    elsewhere = "draw_circle(canvas)\n"
    found = find_excerpts([elsewhere, "\n"], [USE, OTHER_USE], last=last)
    assert [each.text for each in found] == [OTHER_USE.strip()] != last
    assert find_excerpts(["word = 1\n", "\n"], [USE, OTHER_USE], last=last) == []


def test_the_excerpts_of_the_last_request_go_if_one_is_gone_or_they_are_too_long() -> None:
    last = find_texts([BEFORE, "\n"], [USE])
    changed = USE.replace("answer", "result")
    (found,) = find_excerpts([BEFORE, "\n"], [changed], last=last)
    assert found.text == changed.strip()
    short = "parse_invoice(path)\n"
    (found,) = find_excerpts([BEFORE, "\n"], [USE, short], max_chars=len(last[0]) - 1, last=last)
    assert found.text == short.strip()


def test_the_test_of_a_function_and_its_call_sites_are_context_of_its_body() -> None:
    filler = "".join(f"def helper_{number}(value):\n    return value + {number}\n\n\n" for number in range(40))
    document = Document.from_text(f"{filler}def settle_account(account, date):\n    ...\n", "python")
    tests = f"{filler}def test_closing():\n    assert settle_account(Account(0), today).is_closed\n"
    uses = f"{filler}def main():\n    print(settle_account(load(), now()).total)\n"
    found = find_texts(document.texts_around([body_named(document, "settle_account")]), [tests, uses])
    assert any(".is_closed" in each for each in found) and any(").total" in each for each in found)


def test_an_excerpt_says_its_file_and_takes_the_room_that_is_left() -> None:
    one, two = (f"def parse_invoice_{name}(path):\n    return parse_invoice(path)\n" for name in ("one", "two"))
    far = two + "".join(f"name_{number} = {number}\n" for number in range(300)) + BEFORE
    found = find_excerpts([far, "\n"], ["canvas.draw(radius)\n", one])
    assert [each.source for each in found] == [1, 2] and found[0].text == one.strip()
    assert [each.source for each in find_excerpts([far, "\n"], [one], near=len(far))] == [0]
    assert [each.text for each in find_excerpts([BEFORE, "\n"], [one, two], len(one))] == [one.strip()]
    assert find_excerpts([BEFORE, "\n"], [one], len(one) - 2) == find_excerpts([BEFORE, "\n"], [one], 0) == []
