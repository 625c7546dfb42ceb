"""Tables of users whose bytes are spoilt: as pyarrow itself reads them, and what a run made of them."""

from __future__ import annotations

import random
import shutil
from contextlib import chdir
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tests.command_line import run_cli
from tests.robustness.case import Case, files_below, judge
from tests.robustness.damage import SPOILT
from tests.robustness.inputs import FORMATS, NUM_EDGES, NUM_NODES, Inputs, formats, valid

_EITHER = Case("spoilt", lambda _: None, "either")
_REFUSED = Case("unreadable", lambda _: None, "refused")
_NUMBERS = ("age", "cents", "label", "weight", "amount")
_LETTERS = b'0123456789,."-+eE\r\n \0\xffnull'


def outcome(folder: Path, form: str, pick: random.Random) -> tuple[str, str]:
    """Spoil a table of a format, ingest it, and return (found, harmless, silent or unclear; what was seen)."""
    inputs = _drawn(folder, form, pick)
    inputs.write()
    file, how = pick.choice([inputs.nodes_file, inputs.edges_file]), pick.choice(_WAYS[form])
    file.write_bytes(_HOW[how](file.read_bytes(), pick))
    held = files_below(folder)
    with chdir(folder):
        shown = run_cli(inputs.arguments())
    case = _EITHER if _expect_as_read(inputs) else _REFUSED
    wrong = judge(case, inputs, shown, sorted(files_below(folder) - held))
    shutil.rmtree(folder / "runs", ignore_errors=True)
    seen = f"{how} in {file.name}: {shown.message or 'accepted'}"
    if wrong:
        return ("silent" if shown.code == 0 else "unclear"), f"{seen}: {'; '.join(wrong)}"
    return ("harmless" if shown.code == 0 else "found"), seen


def _drawn(folder: Path, form: str, pick: random.Random) -> Inputs:
    """Return tables with floats, decimals and, where the format has them, lists; ids are integers or text."""
    inputs = valid(folder)
    formats(form)(inputs)
    inputs.nodes["cents"], inputs.edges["amount"] = _cents(pick, NUM_NODES), _cents(pick, NUM_EDGES)
    inputs.config["graph"]["features"] = ["age", "cents", *(["x"] if "x" in inputs.nodes else [])]
    if "x" in inputs.nodes and pick.random() < 0.5:
        inputs.nodes["x"] = inputs.nodes["x"].cast(pa.list_(pa.float32()))
    if pick.random() < 0.5:
        for columns, names in ((inputs.nodes, ("id",)), (inputs.edges, ("src", "dst"))):
            columns |= {name: [f"account {each}" for each in columns[name]] for name in names}
    return inputs


def _cents(pick: random.Random, count: int) -> pa.Array:
    return pa.array([Decimal(pick.randrange(10**8)).scaleb(-2) for _ in range(count)], pa.decimal128(10, 2))


def _letter(content: bytes, pick: random.Random) -> bytes:
    place = pick.randrange(len(content))
    return content[:place] + bytes([pick.choice(_LETTERS)]) + content[place + pick.randrange(2) :]


_HOW = {**SPOILT, "letter": _letter}
_WAYS = {form: ("flip", "letter", "truncate", *(() if form == "csv" else ("zero",))) for form in FORMATS}


def _expect_as_read(inputs: Inputs) -> bool:
    """Have a case expect what pyarrow reads of its tables; return whether it can read them."""
    try:
        nodes, edges = _read(inputs.nodes_file), _read(inputs.edges_file)
        if "csv" in inputs.nodes_format:
            nodes, edges = _parsed(nodes, edges)
        inputs.nodes, inputs.edges = (
            {name: t[name].combine_chunks() for name in t.column_names} for t in (nodes, edges)
        )
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, RuntimeError):
        return False
    return True


def _read(file: Path) -> pa.Table:
    if file.name.endswith(".parquet"):
        table = pq.read_table(file)
    elif file.name.endswith(".arrow"):
        table = pa.ipc.open_file(file).read_all()
    else:
        with pa_csv.open_csv(file) as reader:
            names = reader.schema.names
        convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=["", "null", "NULL"]
        )
        table = pa_csv.read_csv(file, convert_options=convert)
    table.validate(full=True)
    return table


def _parsed(nodes: pa.Table, edges: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return tables of text with numbers where they are meant, and ids as integers where all are written as such."""
    ids = [*nodes["id"].to_pylist(), *edges["src"].to_pylist(), *edges["dst"].to_pylist()]
    exact = all(each is not None and each.lstrip("-").isdecimal() and str(int(each)) == each for each in ids)
    kinds = dict.fromkeys(_NUMBERS, float) | (dict.fromkeys(("id", "src", "dst"), int) if exact else {})

    def parsed(table: pa.Table) -> pa.Table:
        columns = {
            name: [None if each is None else kinds.get(name, str)(each) for each in table[name].to_pylist()]
            for name in table.column_names
        }
        return pa.table(columns)

    return parsed(nodes), parsed(edges)
