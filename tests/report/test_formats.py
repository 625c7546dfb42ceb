from __future__ import annotations

import pytest

from gnnflow.report import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.0084, "8 ms"), (12.34, "12.3 s"), (59.99, "60.0 s"), (245, "4 min 05 s"), (7990, "2 h 13 min")],
)
def test_times_read_naturally(value, text):
    assert formats.seconds_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (999_999, "1 MB"), (12_400_000, "12.4 MB"), (3.2e12, "3.2 TB")]
)
def test_sizes_have_three_digits_and_a_unit(value, text):
    assert formats.bytes_text(value) == text


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (10_000, "10k"), (1_234_567, "1.2M"), (0.5, "0.5")])
def test_short_counts(value, text):
    assert formats.short_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8154, "0.815"),
        (1.0, "1.000"),
        (0.99996, "0.99996"),
        (0.0, "0.000"),
        (0.00012, "0.00012"),
        (1942.7, "1,943"),
        (float("nan"), "n/a"),
    ],
)
def test_scores_never_round_to_perfect(value, text):
    assert formats.score_text(value) == text


def test_metric_names_are_words():
    assert formats.metric_name("test.micro_f1") == "test micro-F1"
    assert formats.metric_name("train.seconds_per_epoch") == "train seconds per epoch"
