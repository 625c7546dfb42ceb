"""The pages of fraud and churn run from top to bottom, and end with a list that holds what its threshold promised."""

from __future__ import annotations

import re
import shlex

import pandas as pd
import pytest
from typer.testing import CliRunner

from gnnflow.cli.commands import build_app
from gnnflow.datasets import churn_tables, fraud_tables
from tests.conftest import REPOSITORY

JOURNEYS = {
    "fraud": ("to_investigate.csv", lambda: fraud_tables(num_accounts=12_000, unknown=0.0)["accounts"]),
    "churn": ("to_call.csv", lambda: churn_tables(num_customers=6_000, unknown=0.0)["customers"]),
}


def run_lines(commands: str) -> str:
    """Run the commands of a block, and return what the last one prints."""
    shown = ""
    for line in commands.replace("\\\n", "").splitlines():
        outcome = CliRunner().invoke(build_app(), shlex.split(line, comments=True)[1:])
        assert outcome.exit_code == 0, outcome.output
        shown = outcome.output
    return shown


@pytest.mark.parametrize("page", JOURNEYS)
def test_the_page_ends_with_a_ranked_list(page, tmp_path, monkeypatch):
    file, answers_of = JOURNEYS[page]
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / "docs" / f"{page}.md").read_text()
    first, *later = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shown = run_lines(first)
    assert re.search(r"^test\.average_precision: \w+( better)? than ", shown, re.MULTILINE)
    exec(compile(code, f"{page}.md", "exec"), {})
    listed = pd.read_csv(file)
    assert listed.filter(like="probability").iloc[:, 0].is_monotonic_decreasing
    # the truth of those without a label, which the tables do not have
    people = answers_of().to_pandas()
    answers = people.set_index(people.columns[0]).iloc[:, -1] == "yes"
    assert len(listed) > 10
    assert answers[listed.iloc[:, 0]].mean() > 0.4
    for block in later:
        run_lines(block)
