"""Configs as files: text that is no YAML, too much, too deep, or not a file at all; and `--set`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from tests.robustness.case import Case, accepted, anything, either, refused
from tests.robustness.inputs import Inputs, Spoil, both, command, disk, key

HUGE = 10**30


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _odd()
    yield from _hanging()
    yield from _numbers()
    yield from _sound()
    yield from _devices()
    yield from _overrides()


def written(content: bytes | str | Callable[[], str]) -> Spoil:
    """Replace the config's file. {config} in it is the valid one without its braces; a function makes what is large."""

    def spoil(inputs: Inputs) -> None:
        valid = inputs.config_file.read_bytes()
        text = content() if callable(content) else content
        raw = text.encode() if isinstance(text, str) else text
        inputs.config_file.write_bytes(raw.replace(b"{config}", valid[1:-1]))

    return disk(spoil)


def _bomb(levels: int, fan: int = 10) -> str:
    lines = ["a0: &a0 [x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * fan)}]" for n in range(1, levels)]
    return "\n".join([*lines, f"name: *a{levels - 1}"]) + "\n"


def _odd() -> Iterator[Case]:
    odd: dict[str, bytes | str] = {
        "empty": "",
        "a comment alone": "# nothing\n",
        "null": "null\n",
        "a list": "- a\n- b\n",
        "text": "just words\n",
        "a number": "42\n",
        "two documents": "name: a\n---\nname: b\n",
        "an unclosed bracket": "name: [a\n",
        "an unclosed quote": 'name: "a\n',
        "a tab for indentation": "graph:\n\tnodes: a\n",
        "a key twice": "name: a\nname: b\n",
        "a key twice below": "name: a\ngraph: {nodes: a, nodes: b}\n",
        "a key that is a number": "name: a\n5: b\n",
        "a key that is a list": "? [a, b]\n: c\n",
        "a template": "name: {{ name }}\n",
        "a key that is null": "name: a\n~: c\n",
        "a Python tag": "name: !!python/object/apply:os.system [echo pwned]\n",
        "an unknown tag": "name: !secret x\n",
        "an undefined alias": "name: *nobody\n",
        "an alias to itself": "name: a\ngraph: &g {nodes: *g, edges: e}\n",
        "an alias to itself in a list": "name: a\ngraph: &g [*g]\n",
        "a merge of no mapping": "name: a\n<<: 5\n",
        "a directive": "%YAML 9.9\n---\nname: a\n",
        "Latin-1": "name: caf\u00e9\n".encode("latin-1"),
        "UTF-16 without a mark": "name: a\n".encode("utf-16-le"),
        "half of a character": 'name: "a\\ud83d"\n',
        "binary": bytes(range(256)),
        "NUL": b"name: a\0b\n",
        "control characters": "name: a\x07\x1b[31m\n",
        "an image": b"\x89PNG\r\n\x1a\n" + bytes(64),
        "JSON with a trailing comma and more": '{"name": "a",, "graph": {}}',
        "HTML": "<html><body>404</body></html>\n",
    }
    says = {
        "empty": ("it is empty",),
        "an unclosed bracket": ("line 2",),
        "a key twice": ("'name'", "line 2", "already set"),
        "a template": ("line 1", "the key, a list or mapping, is not text"),
    }
    for name, content in odd.items():
        yield refused(f"config file: {name}", written(content), "config.yaml", *says.get(name, ()))


def _hanging() -> Iterator[Case]:
    hanging: dict[str, Callable[[], str]] = {
        "aliases of aliases": lambda: _bomb(9),
        "aliases of aliases in a key's place": lambda: _bomb(12) + "graph: *a11\n",
        "merges of merges": lambda: (
            "a: &a {x: 1}\n"
            + "".join(
                f"b{n}: &b{n} {{<<: [*{'a' if n == 0 else f'b{n - 1}'}, *{'a' if n == 0 else f'b{n - 1}'}]}}\n"
                for n in range(30)
            )
        ),
        "10,000 brackets": lambda: "name: " + "[" * 10_000,
        "10,000 closed brackets": lambda: "name: " + "[" * 10_000 + "]" * 10_000,
        "deep mappings": lambda: "".join(f"{' ' * n}a:\n" for n in range(3000)),
        "20 MB of comment": lambda: "# " + "x" * 20_000_000 + "\nname: a\n",
        "20 MB of one text": lambda: "name: " + "x" * 20_000_000,
        "20 MB of keys": lambda: "".join(f"k{n}: 1\n" for n in range(1_700_000)),
        "a number of 100,000 digits": lambda: "name: a\nseed: " + "9" * 100_000,
        "a number of 5,000 digits in hexadecimal": lambda: "name: a\nseed: 0x" + "f" * 5000,
        "20,000 unknown keys": lambda: "name: a\ngraph: {" + ", ".join(f"k{n}: 1" for n in range(20_000)) + "}\n",
    }
    for name, content in hanging.items():
        yield refused(f"config file: {name}", written(content), "config.yaml|seed|graph", alone=True)


def _numbers() -> Iterator[Case]:
    for number in ("1e30", "1" + "0" * 30, "9" * 400, "1e308", "0x" + "f" * 30):
        yield refused(
            f"config seed is {number[:8]}, {len(number)} long",
            written(f'{{"seed": {number}, {{config}}}}'),
            "seed|line 1",
        )
        if not number.startswith("0x"):
            yield refused(
                f"config partitions is {number[:8]}, {len(number)} long",
                disk(
                    lambda i, n=number: i.config_file.write_text(
                        i.config_file.read_text().replace('"partitions": 2', f'"partitions": {n}')
                    )
                ),
                "partitions|line 1",
            )
    for path in (
        "train.epochs",
        "train.batch_size",
        "flat.shard_size",
        "model.hidden",
        "infer.parity_samples",
        "neighbors.hub_threshold",
        "train.checkpoint_steps",
        "graph.num_classes",
        "graph.feature_dim",
    ):
        yield either(
            f"config {path}: 10^30",
            both(key(path, HUGE), command("ingest")),
            f"{path}|line 1",
            alone=path == "graph.num_classes",
            check=anything,
        )


def _sound() -> Iterator[Case]:
    good: dict[str, bytes | str] = {
        "a byte order mark": b"\xef\xbb\xbf{ {config} }",
        "Windows line ends": "{\r\n {config} \r\n}\r\n",
        "a document's marks": "---\n{ {config} }\n...\n",
        "comments": "# a\n{ {config} } # b\n",
    }
    for name, content in good.items():
        yield accepted(f"config file: {name}", written(content))
    yield accepted("config: one alias used twice", written('{"seed": &s 3, {config}}'))


def _devices() -> Iterator[Case]:
    yield refused("config is a folder", disk(lambda i: [i.config_file.unlink(), i.config_file.mkdir()]), "config.yaml")
    yield refused("config is missing", disk(lambda i: i.config_file.unlink()), "config.yaml", "no such file")
    yield refused(
        "config is a FIFO",
        disk(lambda i: [i.config_file.unlink(), os.mkfifo(i.config_file)]),
        "config.yaml",
        alone=True,
    )
    for device in ("/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/environ", "/dev/urandom"):
        yield refused(f"config is {device}", named(device), device, alone=True)
    for place in (
        "http://127.0.0.1:9/config.yaml",
        "nowhere://a/b.yaml",
        "s3://",
        "http://",
        "://",
        "file://",
        "\0",
        "a" * 5000,
        "/etc/passwd/x",
        "s3://b/\0",
    ):
        yield refused(
            f"config at {place[:24]!r}", named(place), place.split("\0", maxsplit=1)[0][:20] or "path|config|NUL|null"
        )


def named(place: str) -> Spoil:
    return lambda inputs: setattr(inputs, "argv", ["ingest", place])


def _overrides() -> Iterator[Case]:
    for text in (
        "",
        "=",
        "train.lr",
        "=1",
        ".=1",
        "train.=1",
        ".train=1",
        "train..lr=1",
        "train.lr.x=1",
        "train.rate=1",
        "train=1",
        "a=[",
        "name.x=1",
        "train.lr=[1",
        "train.lr=*a",
        "train.lr=!!python/none x",
        "graph.nodes.a.b=1",
        "a" * 3000 + "=1",
        "train.epochs=1e400",
        "train.lr=\0",
        "train.epochs=" + "9" * 5000,
        " =1",
        "train.epochs=\n",
        "graph=null",
        "model.kind=[]",
    ):
        yield refused(
            f"--set {text[:24]!r}, {len(text)} long",
            command("ingest", "--set", text),
            (text.partition("=")[0].removesuffix(".x") or "--set")[:60],
        )
    yield accepted("--set the same key twice", command("ingest", "--set", "train.epochs=3", "--set", "train.epochs=4"))
    yield accepted("--set a list", command("ingest", "--set", "graph.features=[x]"))
    yield accepted("--set with an equals sign in it", command("ingest", "--set", "model.activation=elu"))
