"""The server under random edits, damaged frames, fills while typing, killed engines and killed editors."""

from pathlib import Path

import pytest
from tests.lsp import pending_model, soak

soaked = pytest.mark.soak


@pytest.mark.parametrize("num_edits", [8_000, pytest.param(1_000_000, marks=[soaked, pytest.mark.timeout(7200)])])
def test_no_edit_desyncs_a_document(num_edits: int) -> None:
    done, wrong = soak.edit_at_random(num_edits)
    assert done >= num_edits and wrong == 0


@pytest.mark.parametrize("num_frames", [1_000, pytest.param(10_000, marks=soaked)])
def test_no_damaged_frame_stops_the_reader(num_frames: int) -> None:
    assert soak.break_frames(num_frames) == (num_frames, 0)


@pytest.mark.parametrize("num_fills", [40, pytest.param(5_000, marks=[soaked, pytest.mark.timeout(7200)])])
async def test_no_fill_goes_to_a_wrong_place(num_fills: int, tmp_path: Path) -> None:
    filled, refused, wrong = await soak.fill_while_typing(num_fills, tmp_path)
    print(f"{filled} filled, {refused} refused")
    assert wrong == 0 and filled + refused == num_fills and filled and refused


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc tells what a process takes")
@pytest.mark.parametrize("num_edits", [8_000, pytest.param(1_000_000, marks=[soaked, pytest.mark.timeout(7200)])])
async def test_memory_is_flat_while_someone_types(num_edits: int) -> None:
    grown_mib = await soak.type_for_hours(num_edits)
    print(f"{num_edits} edits, {grown_mib:.1f} MiB more")
    assert grown_mib < 5


@pytest.mark.parametrize("num_kills", [3, pytest.param(500, marks=[soaked, pytest.mark.timeout(7200)])])
async def test_the_server_outlives_its_engines(num_kills: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    kills, wrong, longest_s = await soak.kill_engines(num_kills, tmp_path)
    print(f"{kills} engines killed, the error came within {longest_s:.2f} s")
    assert (kills, wrong) == (num_kills, 0)


@pytest.mark.parametrize("num_kills", [3, pytest.param(300, marks=[soaked, pytest.mark.timeout(7200)])])
def test_no_server_outlives_its_editor(num_kills: int, tmp_path: Path) -> None:
    assert soak.kill_editors(num_kills, tmp_path) == (num_kills, 0)


@pytest.mark.parametrize("num_sequences", [60, pytest.param(10_000, marks=[soaked, pytest.mark.timeout(14_400)])])
async def test_pending_fills_agree_with_a_plain_model(num_sequences: int) -> None:
    done, wrong = await pending_model.run_sequences(num_sequences)
    print(f"{done} operations in {num_sequences} sequences")
    assert not wrong
