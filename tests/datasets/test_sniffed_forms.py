"""Whatever form a table is written in, an import gives its values back or asks; it never gives others."""

import csv
import gzip
import io
from decimal import Decimal

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gnnflow.datasets import from_edge_csv
from gnnflow.graph.errors import GnnflowError
from tests.budget import examples

WORDS = st.text(st.sampled_from("ab1,;|\t '\"#%:.é-"), min_size=1, max_size=6).filter(lambda text: text == text.strip())
NUMBERS = st.decimals(-9999, 9999, places=2, allow_nan=False)


FORMS = st.fixed_dictionaries(
    {
        "separator": st.sampled_from(",;|\t"),
        "quote": st.sampled_from("\"'"),
        "comma": st.booleans(),
        "header": st.booleans(),
        "end": st.sampled_from(["\n", "\r\n"]),
        "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
        "zipped": st.booleans(),
    }
)


_PLAIN = {"separator": "\t", "quote": '"', "comma": False, "header": False, "end": "\n", "encoding": "utf-8"}


@settings(max_examples=examples(100), deadline=None)
@example(rows=[("1\t'", "1", Decimal("0.00")), ("1", "1'", Decimal("0.00"))], form={**_PLAIN, "zipped": False})
@given(rows=st.lists(st.tuples(WORDS, WORDS, NUMBERS), min_size=1, max_size=5), form=FORMS)
def test_values_come_back_or_are_asked_for(tmp_path_factory, rows, form):
    words = [word for row in rows for word in row[:2]]
    # a quote of the other kind, alone in an unquoted field, opens a field like any
    assume(form["quote"] == '"' or not any('"' in word for word in words))
    assume(not any(row[0].startswith(("# ", "% ", "#\t", "%\t")) for row in rows))  # comments
    text = io.StringIO()
    writer = csv.writer(text, delimiter=form["separator"], quotechar=form["quote"], lineterminator=form["end"])
    if form["header"]:
        writer.writerow(["source", "target", "amount"])
    for src, dst, number in rows:
        writer.writerow([src, dst, str(number).replace(".", "," if form["comma"] else ".")])
    raw = text.getvalue().encode(form["encoding"])
    place = tmp_path_factory.mktemp("form") / ("e.csv.gz" if form["zipped"] else "e.csv")
    place.write_bytes(gzip.compress(raw) if form["zipped"] else raw)
    try:
        edges = from_edge_csv(str(place)).edges
    except GnnflowError:
        return
    found = list(zip(*(map(str, column.to_pylist()) for column in edges.columns[:2]), strict=True))
    assert found == [(src, dst) for src, dst, _ in rows], (text.getvalue(), edges.to_pydict())
    # between commas 1,5 stays text, as the page says
    if form["separator"] != "," or not form["comma"]:
        assert [float(amount) for amount in edges.columns[2].to_pylist()] == [float(number) for *_, number in rows]
