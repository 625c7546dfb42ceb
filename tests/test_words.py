"""The check of plain words finds each kind of riddle, and nothing in plain text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORDS = Path(__file__).parent.parent / ".ci" / "words.py"


def found_in(folder: Path, text: str) -> list[str]:
    """Return what the check says of a file, without its place."""
    (folder / "held.py").write_text(text)
    ran = subprocess.run([sys.executable, WORDS, folder / "held.py"], capture_output=True, text=True, check=False)
    lines = ran.stdout.splitlines()
    assert ran.returncode == bool(lines), ran.stderr
    return [line.split(": ", 1)[1] for line in lines]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('"""What a file holds."""', "docstring begins with 'What'"),
        (f'"""Return {"very " * 20}much."""', "first sentence has 22 words"),
        ('"""Return rows.\n\nAnd those of\nothers."""', "docstring says 'those of'"),
        ("a = 1  # in a thread of its own", "comment says 'of its own'"),
        ("def read_all_rows_of_tables(): ...", "read_all_rows_of_tables has 5 words"),
        ("class WhatIsRead: ...", "WhatIsRead is a clause"),
    ],
)
def test_a_riddle_is_named(tmp_path: Path, text: str, why: str):
    assert found_in(tmp_path, text) == [why]


def test_plain_words_pass(tmp_path: Path):
    text = '"""Read rows."""\n\n\ndef read_rows():\n    """Return the rows [N], which are sorted."""\n'
    assert not found_in(tmp_path, text)
