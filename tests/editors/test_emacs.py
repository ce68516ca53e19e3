"""Emacs with eglot, which has no plugin of ours: its code action fills by one edit, and one undo takes that back."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.lsp.editor import SCRIPTED, server_environment
from tests.lsp.scripted_server import FILL

RUN = Path(__file__).parent / "emacs" / "run.el"
SOURCE = "# 😀\ndef f(a):\n    '''Doc.'''\n    return a\n"


def has_eglot() -> bool:
    emacs = shutil.which("emacs")
    look = [str(emacs), "--batch", "--eval", "(progn (require 'package) (package-initialize) (require 'eglot))"]
    return emacs is not None and subprocess.run(look, capture_output=True, timeout=60).returncode == 0


@pytest.mark.skipif(not has_eglot(), reason="no Emacs with eglot here")
def test_a_code_action_of_eglot(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(SOURCE, encoding="utf-8")
    environment = server_environment(TEST_SERVER=json.dumps(SCRIPTED), HOME=str(tmp_path), LC_ALL="C.UTF-8")
    command = ["emacs", "--batch", "--load", str(RUN), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout == SOURCE.replace("return a", FILL) + SOURCE, done.stdout + done.stderr
