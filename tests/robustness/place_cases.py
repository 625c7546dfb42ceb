"""Paths and URLs of every kind, and secrets: no message and no file ever holds one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.robustness.case import Case, either, nothing_odd, refused
from tests.robustness.inputs import Inputs, both, command, key
from tests.robustness.text_cases import named

SECRET = "s3cr3t-0f-0urs"


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _paths()
    yield from _urls()
    yield from _variables()


def _paths() -> Iterator[Case]:
    bad = (
        "nodes\0.parquet",
        "http://127.0.0.1:9/n.parquet",
        "nowhere://x/n.parquet",
        "~nobody-here/n.parquet",
        "a/" * 3000,
        "a" * 300 + ".parquet",
        "s3://",
        "file://",
        "http://",
        ".",
        "",
        " ",
        "\n",
        "*",
        "s3://*/x",
        "[",
        "::",
        "zip://a::b",
        "data:text/csv,id",
        "github://a:b@c/d",
        "cached::x.parquet",
    )
    for place in bad:
        for which in ("nodes", "edges"):
            yield refused(
                f"graph.{which} is {place[:24]!r}, {len(place)} long",
                key(f"graph.{which}", place),
                f"graph.{which}|table|columns|{place.strip()[:12].split(chr(0))[0]}",
            )


def _urls() -> Iterator[Case]:
    urls = (
        f"http://user:{SECRET}@127.0.0.1:9/n.parquet",
        f"http://{SECRET}@127.0.0.1:9/n.parquet",
        f"http://:{SECRET}@127.0.0.1:9/n.parquet",
        f"http://127.0.0.1:9/n.parquet?sig={SECRET}",
        f"http://127.0.0.1:9/n.parquet?key={SECRET}&a=1",
        f"http://127.0.0.1:9/n.parquet?X-Amz-Signature={SECRET}",
        f"http://127.0.0.1:9/n.parquet?token={SECRET}#x",
        f"s3://AKIA:{SECRET}@bucket/n.parquet",
        f"abfs://container@account/n.parquet?sv=1&sig={SECRET}",
        f"nowhere://{SECRET}@host/n.parquet",
        f"ftp://user:{SECRET}@127.0.0.1:9/n.parquet",
        f"HTTP://user:{SECRET}@127.0.0.1:9/n.parquet",
        f"http://user:a%2F{SECRET}@127.0.0.1:9/n.parquet",
        f"//user:{SECRET}@127.0.0.1:9/n.parquet",
        f"//{SECRET}@127.0.0.1:9/n.parquet",
        f"http:/user:{SECRET}@127.0.0.1:9/n.parquet",
        f"http://127.0.0.1:9/a;jsessionid={SECRET}/n.parquet",
        f"/data/runs;SESSION={SECRET}/n.parquet",
    )
    places = {
        "graph.nodes": lambda url: key("graph.nodes", url),
        "graph.edges": lambda url: key("graph.edges", url),
        "workspace": lambda url: key("workspace", url),
        "--workspace": lambda url: command("ingest", "--workspace", url),
        "--set": lambda url: command("ingest", "--set", f"graph.nodes={url}"),
        "the config's place": named,
        "cluster.address": lambda url: key("cluster", {"kind": "address", "address": url}),
        "report": lambda url: lambda i: setattr(i, "argv", ["report", url]),
        "models": lambda url: lambda i: setattr(i, "argv", ["models", "list", "--workspace", url]),
        "import": lambda url: lambda i: setattr(i, "argv", ["import", f"csv:{url}", "--out", str(i.folder / "out")]),
        "import --out": lambda url: lambda i: setattr(i, "argv", ["import", f"csv:{i.folder}/edges.csv", "--out", url]),
        "costs": lambda url: lambda i: setattr(i, "argv", ["costs", url]),
        "score-pairs": lambda url: lambda i: setattr(i, "argv", ["score-pairs", url, url, "--out", url]),
        "generate": lambda url: lambda i: setattr(i, "argv", ["generate", "payments", "--out", url]),
    }
    named_keys = {"graph.nodes", "graph.edges", "workspace", "cluster.address"}
    for number, url in enumerate(urls):
        for place, spoil in places.items():
            everywhere = number < 6 or url.startswith(("s3:", "//", "http:/u"))
            if everywhere or place in {"graph.nodes", "workspace"}:
                word = place if place in named_keys else "holds|names a scheme and no place"
                yield refused(f"secret {number} in {place}", spoil(url), word, hidden=(SECRET,))


def _variables() -> Iterator[Case]:
    fields = (
        "train.epochs",
        "train.lr",
        "name",
        "graph.normalize",
        "workspace",
        "graph.nodes",
        "graph.features",
        "model.kind",
        "seed",
        "infer.targets",
        "cluster.kind",
        "train.cache",
        "graph.num_classes",
        "publish.name",
        "infer.embeddings",
        "nonsense",
    )
    for field in fields:
        value: Any = (
            ["${GNNFLOW_TEST_SECRET}"] if field in {"graph.features", "infer.targets"} else "${GNNFLOW_TEST_SECRET}"
        )
        yield refused(
            f"a secret variable in {field}",
            both(key(field, value), _variable),
            field.rpartition(".")[2],
            hidden=(f"!{SECRET}",),
        )
    yield refused(
        "a secret variable inside a URL",
        both(key("graph.nodes", "http://${GNNFLOW_TEST_SECRET}@127.0.0.1:9/n.parquet"), _variable),
        "graph.nodes",
        hidden=(SECRET,),
    )
    yield refused(
        "a variable that is not set",
        key("graph.nodes", "${GNNFLOW_NO_SUCH_VARIABLE}/n"),
        "GNNFLOW_NO_SUCH_VARIABLE",
        "graph.nodes",
    )
    for text in ("${", "${}", "${1A}", "${A B}", "${A:+b}", "${A?b}", "${${A}}"):
        yield either(
            f"the variable {text}",
            both(key("model.activation", text)),
            "model.activation|activation",
            check=nothing_odd,
        )


def _variable(inputs: Inputs) -> None:
    inputs.environment["GNNFLOW_TEST_SECRET"] = f"!{SECRET}"
