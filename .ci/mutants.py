"""Mutants tell which rings of tests still find faults: each is one small fault that somebody might make.

Five commands, each of which keeps what it finds in a folder (`.mutants`), where the next one reads it. `kill` goes on
where it was stopped. What runs within pytest is in mutant_plugin.py.

- `choose` draws expressions of the library by a seed, as many from each package, and a mutation of each;
- `instrument` copies a tree, and writes all mutations into the copy at once, each behind a switch;
- `reach` runs a ring of tests once on that copy, and notes the tests in which each switch was asked;
- `kill` turns on one mutant after another, and runs the tests that reach it until one fails;
- `table` prints the share of mutants that each ring kills, and those that survive.

The same mutants are found again by their text in another tree, so two states of the tests can be compared.

`kill` starts processes that collect the tests once. A child is forked from one of them for each mutant, so a mutant
costs no import of torch; its whole family ends with it. A test counts only if it passes in such a child without a
mutant, and a test that hangs or that takes its process with it counts as one that failed.

Limits: a module's cache that a test fills hides the mutants behind it from the later tests of that process, so a mutant
may be reached by more tests than are listed; functions that are cached as a whole are left out. A mutant that runs
while test files are imported is measured in a process of its own, by the tests of its package and those that reach it
later. All processes compute with one thread, and hypothesis draws the same examples each time.
"""

from __future__ import annotations

import argparse
import ast
import collections
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutant_plugin import append

HERE = Path(__file__).resolve()
PACKAGES = ("kernels", "sampling", "mapreduce", "storage", "graphfeature", "infer", "train", "config")
SKIPPED = ("gnnflow/kernels/cuda/",)
SENT = {"_installed"}  # functions whose code runs without their module, on workers that lack it

RINGS = ("test", "ci", "all")
QUIETLY = ["-q", "-p", "mutant_plugin", "-p", "no:randomly", "-p", "no:cacheprovider"]

SWITCH = '''"""Switches say which mutant is on, and note who asked."""

import mmap
import os

_active = int(os.environ.get("GNNFLOW_MUTANT", "0"))
_folder = os.environ.get("GNNFLOW_REACH")
_board = None
_noted = set()
if _folder:
    with open(os.environ["GNNFLOW_REACH_BOARD"], "rb") as _file:
        _board = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)


def activate(number):
    global _active
    _active = number


def on(number):
    if _board is not None:
        seen = number, _board[:8]
        if seen not in _noted:
            _noted.add(seen)
            with open(os.path.join(_folder, f"pairs-{os.getpid()}"), "ab") as file:
                file.write(b"%d\\t%s\\n" % (number, _board[8:].rstrip(b"\\0")))
    return number == _active
'''

# ---------------------------------------------------------------- choosing

Operators = dict[type[ast.AST], type[ast.AST]]
COMPARISONS: Operators = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: Operators = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
JOINED = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)
# Calls whose arguments are words for a reader; and rsplit, whose last piece is the same with any number of splits.
LEFT_ALONE = {"debug", "info", "warning", "warn", "exception", "log", "print", "echo", "rsplit"}
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Candidate:
    """An expression of a function, and what a mutation makes of it."""

    function: str
    statement: str
    kind: str
    node: ast.expr
    mutated: str

    def text(self) -> tuple[str, str, str, str]:
        """Return all of it that another tree has as well, where the function is the same."""
        return self.function, self.statement, ast.unparse(self.node), self.mutated


def _mutations(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Yield the kind, the expression and its mutation for what a node offers."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "condition", test, ast.UnaryOp(ast.Not(), test)
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                other = [*ops[:i], COMPARISONS[type(op)](), *ops[i + 1 :]]
                yield "comparison", node, ast.Compare(node.left, other, node.comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            if not any(isinstance(s, JOINED) or isinstance(getattr(s, "value", 0), str) for s in (left, right)):
                yield "arithmetic", node, ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield "and/or", node, ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", node, operand
        case ast.Constant(value=bool(value)):
            yield "truth", node, ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "integer", node, ast.Constant(value + 1)


def _spoken(node: ast.AST) -> bool:
    """Tell whether a node is a text, a message, an error, or our own claim."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name in LEFT_ALONE or name.endswith(("Error", "Warning"))
    return isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.pattern | ast.arguments)


def candidates(node: ast.AST, names: tuple[str, ...] = (), statement: ast.stmt | None = None) -> Iterator[Candidate]:
    """Yield each mutation that the functions below a node offer, in the order of their text."""
    if _spoken(node):
        return
    if isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        statement = node if statement is not None else None
    if statement is not None:
        for kind, expression, mutated in _mutations(node):
            header = ast.unparse(statement).partition("\n")[0]
            yield Candidate(".".join(names), header, kind, expression, ast.unparse(mutated))
    below: Iterator[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, Function):
        if node.name in SENT or any(
            word in ast.unparse(each) for each in node.decorator_list for word in ("cache", "jit", "overload")
        ):
            return
        names, statement, below = (*names, node.name), node.body[0], iter(node.body)
    elif isinstance(node, ast.ClassDef):
        names, below = (*names, node.name), iter(node.body)
    elif isinstance(node, ast.AnnAssign):
        below = iter([node.value] if node.value else [])
    for child in below:
        yield from candidates(child, names, statement)


def _numbered(source: str) -> Iterator[tuple[tuple[object, ...], Candidate]]:
    """Yield each candidate of a file with its text and its number among those of the same text."""
    met: collections.Counter[tuple[str, ...]] = collections.Counter()
    for each in candidates(ast.parse(source)):
        yield (*each.text(), met[each.text()]), each
        met[each.text()] += 1


def choose(args: argparse.Namespace) -> None:
    """Draw the mutants, unless they are there: packages alike, functions once before any comes a second time."""
    file = args.work / "mutants.json"
    if file.exists():
        print(f"{file} is there, and stays as it is")
        return
    draw, chosen = random.Random(args.seed), []  # noqa: S311 - which mutants are drawn is no secret
    for package in PACKAGES:
        functions: dict[tuple[str, str], list[tuple[tuple[object, ...], Candidate]]] = {}
        for path in sorted((args.tree / "gnnflow" / package).rglob("*.py")):
            name = path.relative_to(args.tree).as_posix()
            if not name.startswith(SKIPPED) and not name.endswith("_pb2.py"):
                for key, each in _numbered(path.read_text()):
                    functions.setdefault((name, each.function), []).append((key, each))
        for name, function in draw.sample(sorted(functions), min(args.each, len(functions))):
            offered = functions[name, function]
            kind = draw.choice(sorted({each.kind for _, each in offered}))
            key, _ = draw.choice([(key, each) for key, each in offered if each.kind == kind])
            chosen.append({"id": len(chosen) + 1, "package": package, "path": name, "key": list(key)})
    args.work.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"seed": args.seed, "mutants": chosen}, indent=1))
    print(f"{len(chosen)} mutants in {file}")


# ---------------------------------------------------------------- instrumenting


def _offset(lines: list[bytes], row: int, column: int) -> int:
    return sum(map(len, lines[: row - 1])) + column


def _switched(source: bytes, found: list[tuple[int, Candidate]]) -> bytes:
    """Return a module's source with a switch around each candidate, line by line where it was."""
    lines = source.splitlines(keepends=True)
    spans = [
        (_offset(lines, n.lineno, n.col_offset), _offset(lines, n.end_lineno or 0, n.end_col_offset or 0), i, each)
        for i, each in found
        for n in [each.node]
    ]
    for begin, end, number, each in sorted(spans, key=lambda span: span[0], reverse=True):
        test = f"(({each.mutated}) if _mutants.on({number}) else (".encode()
        source = source[:begin] + test + source[begin:end] + b"))" + source[end:]
    future = b"from __future__ import annotations"
    if future in source:
        return source.replace(future, future + b"; from gnnflow import _mutants", 1)
    body = ast.parse(source).body
    first = isinstance(body[0], ast.Expr)  # the docstring
    at = (body[0].end_lineno or 0) if first else body[0].lineno - 1
    lines = source.splitlines(keepends=True)
    return b"".join([*lines[:at], b"from gnnflow import _mutants\n", *lines[at:]])


def _copy(tree: Path, to: Path) -> None:
    """Copy what git would keep of a tree, and the compiled core."""
    shutil.rmtree(to, ignore_errors=True)
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(asked, cwd=tree, check=True, capture_output=True, text=True).stdout.split("\0")
    built = [str(path.relative_to(tree)) for path in tree.glob("gnnflow/native/_native.*")]
    for name in {*filter(None, listed), *built}:
        if (tree / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, to / name, follow_symlinks=False)


def instrument(args: argparse.Namespace) -> None:
    """Copy the tree, with a switch for each mutant that is found in it by its text; drop what another copy gave."""
    copy = args.state / "tree"
    _copy(args.tree, copy)
    sources = {p.relative_to(copy).as_posix(): p for p in sorted((copy / "gnnflow").rglob("*.py"))}
    here, anywhere = {}, {}
    for name, path in sources.items():
        for key, each in _numbered(path.read_text()):
            here[name, key] = anywhere[key] = name, each
    switches: dict[str, list[tuple[int, Candidate]]] = {}
    lines, gone = {}, []
    for mutant in json.loads((args.work / "mutants.json").read_text())["mutants"]:
        key = tuple(mutant["key"])
        name, each = here.get((mutant["path"], key)) or anywhere.get(key) or ("", None)
        if each is None:
            gone.append(mutant["id"])
            continue
        switches.setdefault(name, []).append((mutant["id"], each))
        lines[mutant["id"]] = f"{name}:{each.node.lineno}"
    for name, found in switches.items():
        text = _switched(sources[name].read_bytes(), found)
        compile(text, name, "exec")
        sources[name].write_bytes(text)
    (copy / "gnnflow" / "_mutants.py").write_text(SWITCH)
    digest = hashlib.sha256()
    for path in sorted(each for each in copy.rglob("*") if each.is_file()):
        digest.update(str(path.relative_to(copy)).encode() + path.read_bytes())
    places = args.state / "places.json"
    if places.exists() and json.loads(places.read_text())["digest"] != digest.hexdigest():
        for stale in (args.state / "results.jsonl", *args.state.glob("reach-*.json")):
            stale.unlink(missing_ok=True)
    places.write_text(json.dumps({"digest": digest.hexdigest(), "places": lines, "gone": gone}))
    print(f"{len(lines)} mutants in {copy}" + (f"; gone: {gone}" if gone else ""))


# ---------------------------------------------------------------- running pytest


def _environment(args: argparse.Namespace, **more: str) -> dict[str, str]:
    copy, data = args.state / "tree", args.tree.parent / "shared" / "data"
    left = {k: v for k, v in os.environ.items() if k not in {"PYTEST_ADDOPTS", "GNNFLOW_MUTANT", "GNNFLOW_REACH"}}
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    places = {"GNNFLOW_DATA": str(data)} if data.is_dir() else {}
    path = os.pathsep.join(map(str, (copy, copy / "operators", HERE.parent)))
    budget = {} if args.ring == "test" else {"GNNFLOW_TESTS": "all"}
    return {**places, **left, **one, **budget, "PYTHONPATH": path, **more}


def reach(args: argparse.Namespace) -> None:
    """Run a ring of tests once, and keep which mutants each of them reaches and how long it takes."""
    file = args.state / f"reach-{args.ring}.json"
    if file.exists() and json.loads(file.read_text())["only"] == args.only:
        print(f"{file} is there, and stays as it is")
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", *QUIETLY, *_options(args), "-n", str(args.processes)]
        command += ["--dist", "worksteal", *args.only]
        subprocess.run(command, cwd=args.state / "tree", env=_environment(args, GNNFLOW_REACH=folder), check=False)
        found = _reached(Path(folder))
    print(f"{len(found['tests'])} tests of {args.ring} reach {len(found['mutants'])} mutants")
    print(f"reached at import: {found['import']}; left out, since they fail without a mutant: {found['failed']}")
    file.write_text(json.dumps({"only": args.only, **found}, indent=1))


def _options(args: argparse.Namespace) -> list[str]:
    """Return what pytest is asked for in a ring: each adds to the ones before it."""
    selected = ["-m", args.exhaustive]
    return {"test": [], "ci": [*selected, "--slice", args.slice], "all": selected}[args.ring]


def _reached(folder: Path) -> dict[str, Any]:
    records = [json.loads(line) for file in folder.glob("tests-*") for line in file.read_text().splitlines()]
    made: dict[str, float] = collections.defaultdict(float)
    users: dict[str, list[str]] = collections.defaultdict(list)
    for record in records:
        if "fixture" in record:
            made[record["fixture"]] = max(made[record["fixture"]], record["seconds"])
    tests, failed = {}, [r["test"] for r in records if not r.get("ok", True)]
    for record in (r for r in records if r.get("ok")):
        test, seconds = record["test"], record["seconds"]
        for fixture, making in made.items():
            base, _, name = fixture.removeprefix("fixture:").partition("|")
            if name in record["fixtures"] and test.startswith(base):
                users[fixture].append(test)
                seconds += making
        tests[test] = round(seconds, 3)
    mutants: dict[str, set[str]] = collections.defaultdict(set)
    for line in (line for file in folder.glob("pairs-*") for line in file.read_text().splitlines()):
        number, _, name = line.partition("\t")
        mutants[number] |= {"import"} if name == "import" else {t for t in users.get(name, [name]) if t in tests}
    early = sorted(int(number) for number, names in mutants.items() if "import" in names)
    listed = {number: sorted(names - {"import"}) for number, names in mutants.items()}
    return {"tests": tests, "failed": failed, "import": early, "mutants": listed}


# ---------------------------------------------------------------- killing


def _in_turn(tests: set[str], seconds: dict[str, float], preferred: set[str]) -> list[str]:
    """Sort tests: those that killed before, then the shortest case of each test function, then the others."""
    turns: collections.Counter[str] = collections.Counter()
    keys = {}
    for test in sorted(tests, key=lambda each: (seconds[each], each)):
        function = test.partition("[")[0]
        keys[test] = test not in preferred, turns[function], seconds[test]
        turns[function] += 1
    return sorted(tests, key=keys.__getitem__)


def _results(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def kill(args: argparse.Namespace) -> None:
    """Measure each mutant that no ring has killed and this ring has not measured yet."""
    file = args.state / "results.jsonl"
    before = _results(args.prefer) if args.prefer else []
    mutants = json.loads((args.work / "mutants.json").read_text())["mutants"]
    places = json.loads((args.state / "places.json").read_text())["places"]
    found = json.loads((args.state / f"reach-{args.ring}.json").read_text())
    settled = {r["mutant"] for r in _results(file) if r["end"] not in {"survived", "unreached"}}
    settled |= {r["mutant"] for r in _results(file) if r["ring"] == args.ring}
    jobs, early = [], []
    for number, package in ((m["id"], m["package"]) for m in mutants if str(m["id"]) in places):
        tests = set(found["mutants"].get(str(number), []))
        if number in found["import"]:
            tests |= {test for test in found["tests"] if test.startswith(f"tests/{package}/")}
        if args.only:
            tests = {test for test in tests if test.startswith(tuple(args.only))}
        if number in settled or (args.only and not tests):
            continue
        if not tests:
            append(file, {"mutant": number, "ring": args.ring, "end": "unreached", "seconds": 0})
            continue
        killers = {r["test"] for r in before if r["mutant"] == number and "test" in r}
        job = {"id": number, "tests": _in_turn(tests, found["tests"], killers)}
        (early if number in found["import"] else jobs).append(job)
    if jobs:
        _kill_in_processes(args, found, jobs)
        if not {job["id"] for job in jobs} & {r["mutant"] for r in _results(file) if r["ring"] == args.ring}:
            sys.exit("pytest ended before it ran a test; run it in the instrumented tree to see why")
    for job in early:
        _kill_in_processes(args, found, [job], alone=job["id"])
        measured = {(r["mutant"], r["ring"]) for r in _results(file)}
        if (job["id"], args.ring) not in measured:  # not even the tests' folders could be read
            append(file, {"mutant": job["id"], "ring": args.ring, "end": "crash", "seconds": 0})


def _kill_in_processes(
    args: argparse.Namespace, found: dict[str, Any], jobs: list[dict[str, Any]], alone: int = 0
) -> None:
    """Start the processes that measure these mutants, and wait; or one, with a mutant on from its start."""
    with tempfile.TemporaryDirectory() as folder:
        job, claims = Path(folder) / "job.json", Path(folder) / "claims"
        claims.mkdir()
        results = str(args.state / "results.jsonl")
        shared = {"ring": args.ring, "budget": args.budget, "claims": str(claims), "results": results}
        job.write_text(json.dumps({**shared, "alone": alone, "mutants": jobs, "seconds": found["tests"]}))
        files = sorted({test.partition("::")[0] for each in jobs for test in each["tests"]})
        command = [sys.executable, "-m", "pytest", *QUIETLY, "-p", "no:xdist", "--capture=sys", "--no-header"]
        command += ["--no-summary", *_options(args), *files]
        environment = _environment(args, MUTANTS_JOB=str(job), GNNFLOW_MUTANT=str(alone))
        started = [
            subprocess.Popen(command, cwd=args.state / "tree", env=environment, stdout=subprocess.DEVNULL)
            for _ in range(1 if alone else args.processes)
        ]
        try:
            for process in started:
                process.wait()
        finally:
            for process in started:
                process.send_signal(signal.SIGINT)  # so that it ends its children
                process.wait()


# ---------------------------------------------------------------- telling


def table(args: argparse.Namespace) -> None:
    """Print the share of mutants that each ring kills with those before it, and the survivors."""
    places = json.loads((args.state / "places.json").read_text())["places"]
    mutants = [m for m in json.loads((args.work / "mutants.json").read_text())["mutants"] if str(m["id"]) in places]
    results = _results(args.state / "results.jsonl")
    rings = [ring for ring in RINGS if any(r["ring"] == ring for r in results)]
    killed = {r["mutant"]: rings.index(r["ring"]) for r in results if r["end"] not in {"survived", "unreached"}}
    print("| package | mutants | " + " | ".join("+".join(rings[: i + 1]) for i in range(len(rings))) + " |")
    print("|---|---:|" + "---:|" * len(rings))
    for package in (*PACKAGES, "all"):
        ids = [m["id"] for m in mutants if package in {m["package"], "all"}]
        counts = [sum(killed.get(i, len(rings)) <= ring for i in ids) for ring in range(len(rings))]
        shares = [f"{count} ({100 * count / max(1, len(ids)):.0f} %)" for count in counts]
        print(f"| {package} | {len(ids)} | " + " | ".join(shares) + " |")
    print("\nSurvivors:\n")
    for mutant in (m for m in mutants if m["id"] not in killed):
        function, _, expression, mutated, _ = mutant["key"]
        told = [r for r in results if r["mutant"] == mutant["id"]]
        tests, seconds = sum(len(r.get("tests", ())) for r in told), sum(r["seconds"] for r in told)
        end = f"{tests} tests, {seconds:.0f} s" if tests else "no test reaches it" if told else "not measured"
        print(f"- {mutant['id']}: {places[str(mutant['id'])]} `{function}`: `{expression}` to `{mutated}` ({end})")


def main() -> None:
    """Read the command line and run one command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = {each.__name__: each for each in (choose, instrument, reach, kill, table)}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--tree", type=Path, default=HERE.parents[1], help="the tree to measure (this one)")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / ".mutants", help="the folder to keep all in")
    parser.add_argument("--tag", help="the measured tree's folder in it (the tree's name)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=15, help="mutants of each package")
    parser.add_argument("--ring", choices=RINGS, default="test")
    parser.add_argument("--exhaustive", default="not airflow", help="the marks of the tests beyond the first ring")
    parser.add_argument("--slice", default="1/12", help="the part of them that the second ring runs")
    parser.add_argument("--only", nargs="*", default=[], help="folders or files of tests")
    parser.add_argument("--budget", type=float, default=0, help="seconds of tests for a mutant and ring (no limit)")
    parser.add_argument("--prefer", type=Path, help="results of another tree, whose killers run first")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    args.tree, args.work = args.tree.resolve(), args.work.resolve()
    args.state = args.work / (args.tag or args.tree.name)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    commands[args.command](args)


if __name__ == "__main__":
    main()
