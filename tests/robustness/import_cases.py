"""`gnnflow import` and `gnnflow generate`: odd specs, options, edge lists and destinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow.parquet as pq

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, anything, either, refused
from tests.robustness.inputs import Inputs, Spoil, both, disk, line


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _specs()
    yield from _edge_lists()
    yield from _places()


def _specs() -> Iterator[Case]:
    out = ("--out", "{folder}/out")
    specs = (
        "",
        ":",
        "csv",
        "csv:",
        ":x",
        "csv:{folder}/none.csv",
        "csv:{folder}",
        "csv:/dev/null",
        "csv:\0",
        "networkx:",
        "networkx:{folder}/none.graphml",
        "networkx:{folder}/config.yaml",
        "networkx:{folder}/edges.parquet",
        "dgl:Cora",
        "pyg:",
        "pyg:NoSuchSet",
        "pyg:Planetoid/Nonsense",
        "pyg:..",
        "pickle:x.pkl",
        "csv:x.pkl",
        "xml:x",
        "csv:http://127.0.0.1:9/e.csv",
        "csv:nowhere://e.csv",
        "csv:{folder}/*.csv",
        "csv:{folder}/config.yaml",
        "csv:{folder}/edges.parquet",
        "CSV:{folder}/edges.csv",
        "pyg:__import__",
        "pyg:Data",
    )
    for spec in specs:
        yield refused(f"import {spec[:30]!r}", line("import", spec, *out), f"{_named(spec)}|director|folder|NUL")
    options = (
        "",
        "=",
        "sep",
        "sep=",
        "sep=ab",
        "sep=\n",
        'sep="',
        "src=99",
        "src=nobody",
        "dst=-1",
        "src=",
        "header=maybe",
        "header=",
        "weight=99",
        "weight=nobody",
        "nodes={folder}/none.csv",
        "nodes={folder}/config.yaml",
        "node_id=nobody",
        "sepp=,",
        "src=0",
        "dst=0",
        "weight=0",
        "sep=\0",
        "src=\u00b2",
        "header=\u00b2",
    )
    for option in options:
        must = (
            either
            if option in {"node_id=nobody", "src=0", "dst=0", "weight=0", "src=", "header=", 'sep="', "sep="}
            else refused
        )
        spoil = both(
            _edge_csv("src,dst,weight\n1,2,3\n2,3,4\n"),
            line("import", "csv:{folder}/list.csv", *out, "--option", option),
        )
        yield must(
            f"import --option {option[:20]!r}",
            spoil,
            "list.csv|--option|" + (option.partition("=")[2].replace("{folder}", "").lstrip("/") or "option"),
            **({"check": anything} if must is either else {}),
        )


def _edge_lists() -> Iterator[Case]:
    out = ("--out", "{folder}/out")
    texts = {
        "empty": "",
        "header alone": "src,dst\n",
        "ragged": "src,dst\n1,2\n3\n",
        "one column": "src\n1\n",
        "null ends": "src,dst\n1,\n",
        "unbalanced": 'src,dst\n"1,2\n3,4\n',
        "comments alone": "# a\n# b\n",
        "columns of one name": "src,src\n1,2\n",
        "a column called dst twice": "src,dst,dst\n1,2,3\n",
    }
    for name, text in texts.items():
        yield refused(
            f"import of an edge list that is {name}",
            both(_edge_csv(text), line("import", "csv:{folder}/list.csv", *out)),
            "list.csv",
        )
    for name, raw in {
        "UTF-16 without its mark": "src,dst\n1,2\n".encode("utf-16-le"),
        "binary": bytes(range(256)) * 4,
        "Latin-1": "src,dst\né,ü\n".encode("latin-1"),
    }.items():
        yield refused(
            f"import of an edge list in {name}",
            both(_edge_csv(raw), line("import", "csv:{folder}/list.csv", *out)),
            "list.csv",
        )
    spoil = both(_edge_csv("src,dst\n007,é\n".encode("utf-16")), line("import", "csv:{folder}/list.csv", *out))
    yield accepted("import of an edge list in UTF-16", spoil, check=_imported(("007", "é")))
    for name, ids in {
        "leading zeros": ("007", "008"),
        "hexadecimal": ("0x33", "0x34"),
        "dates": ("2024-01-05", "2024-01-06"),
        "exponents": ("1e5", "2e5"),
        "truth": ("true", "false"),
        "beyond 2^63": ("9223372036854775808", "9223372036854775809"),
    }.items():
        spoil = both(_edge_csv(f"src,dst\n{ids[0]},{ids[1]}\n"), line("import", "csv:{folder}/list.csv", *out))
        yield accepted(f"import of ids with {name}", spoil, check=_imported(ids))


def _places() -> Iterator[Case]:
    out = ("--out", "{folder}/out")
    good = _edge_csv("src,dst\n1,2\n")
    for place, word in {
        "{folder}/config.yaml": "config.yaml",
        "/proc/out": "/proc/out",
        "nowhere://out": "nowhere",
        "": "--out|out",
        "\0": "--out|out|path|written|NUL",
        "http://127.0.0.1:9/out": "http",
    }.items():
        yield refused(
            f"import --out {place!r}", both(good, line("import", "csv:{folder}/list.csv", "--out", place)), word
        )
    yield refused("import without --out", both(good, line("import", "csv:{folder}/list.csv")), "--out", usage=True)
    yield refused("import of nothing", line("import"), "SPEC|spec", usage=True)
    for argument, word in {
        "--nodes 5": "--nodes",
        "--edges -1": "--edges",
        "--seed -1": "--seed",
        "--nodes x": "--nodes",
        "--nodes 1e30": "--nodes",
    }.items():
        yield refused(
            f"generate payments {argument}", line("generate", "payments", *out, *argument.split()), word, usage=True
        )
    for typed in ((), ("--typed",)):
        command = " ".join(("generate payments", *typed))
        into = ("generate", "payments", *typed, "--out")
        yield refused(f"{command} into a file", line(*into, "{folder}/config.yaml"), "config.yaml")
        small = ("--nodes", "100", "--edges", "100")
        yield refused(f"{command} onto /proc", line(*into, "/proc/x", *small), "/proc/x")


def _named(spec: str) -> str:
    return spec.rsplit("/", 1)[-1].split("\0", maxsplit=1)[0][:20] or "import"


def _edge_csv(text: str | bytes) -> Spoil:
    raw = text if isinstance(text, bytes) else text.encode()
    return disk(lambda inputs: (inputs.folder / "list.csv").write_bytes(raw))


def _imported(ids: tuple[str, str]) -> Callable[[Inputs, Shown], list[str]]:
    def check(inputs: Inputs, shown: Shown) -> list[str]:
        (file,) = (inputs.folder / "out").rglob("edges*.parquet")
        row = pq.read_table(file).to_pylist()[0]
        return [] if (row["src"], row["dst"]) == ids else [f"{ids} became {row}"]

    return check
