"""Compile every program for cards of two generations, which needs none of them; prints how many there were.

Run without TRITON_INTERPRET: what is interpreted is not compiled.
"""

from __future__ import annotations

from itertools import product

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gnnflow.kernels.cuda import largest_programs, softmax_programs, sum_programs
from gnnflow.kernels.cuda.attention import _tile_of
from gnnflow.kernels.cuda.sums import _Walk, tile_of

GENERATIONS = (80, 90)
INTEGERS = {
    "offsets", "sources", "edges", "targets", "begins", "piece_targets", "first_pieces", "num_pieces", "hub_targets"
}  # fmt: skip
NUMBERS = {"num_targets", "num_edges", "columns", "width", "heads", "value_columns", "right_columns"}
ROWS = {"values", "left", "right"}  # may be in half precision


def choices(name, *, columns):
    """Yield the constants that a program is compiled with, and its number of warps."""
    both = (False, True)
    if name.startswith("sum_") and name != "sum_pieces":
        walk = _Walk.of(columns)
        for ordered, weighted, divided in product(both, both, both):
            flags = {"ORDERED": ordered, "WEIGHTED": weighted, "DIVIDED": divided}
            yield {**flags, "LONGEST": walk.longest, **walk.tile}, walk.num_warps
    elif name == "sum_pieces":
        yield {"TILE_COLUMNS": 64}, 1
    elif name == "multiply_rows":
        high, wide = tile_of(columns)
        yield {"TILE_EDGES": high, "TILE_COLUMNS": wide}, 1
    elif name.startswith("softmax"):
        high, wide = _tile_of(4)
        for halves, scaled, dropped in product(both, both, both):
            flags = {"HALVES": halves, "DROPPED": dropped} | ({} if name.endswith("gradient") else {"SCALED": scaled})
            yield {**flags, "TILE_EDGES": high, "TILE_HEADS": wide}, 1
    else:
        for weighted in both:
            yield {"WEIGHTED": weighted, "TILE_COLUMNS": 64}, 1


def kind_of(name, rows):
    """Return the type of an argument of a program that reads rows of a type."""
    if name in INTEGERS:
        return "*i64"
    if name in NUMBERS:
        return "i32"
    if name == "slope":
        return "fp32"
    if name == "places":
        return "*i32"
    return f"*{rows}" if name in ROWS else "*fp32"


def compile_program(program, constants, num_warps, *, generation, rows):
    """Compile a program with these constants for cards of a generation."""
    names = program.arg_names
    signature = {name: "constexpr" if name in constants else kind_of(name, rows) for name in names}
    given = {(names.index(name),): held for name, held in constants.items()}
    source = ASTSource(program, signature, given)
    triton.compile(source, target=GPUTarget("cuda", generation, 32), options={"num_warps": num_warps})


def main():
    """Compile all of them."""
    num_compiled = 0
    programs = {
        "sum_rows": (sum_programs, 64),
        "sum_narrow_rows": (sum_programs, 8),
        "sum_pieces": (sum_programs, 64),
        "multiply_rows": (sum_programs, 64),
        "softmax_rows": (softmax_programs, 64),
        "softmax_rows_gradient": (softmax_programs, 64),
        "largest_rows": (largest_programs, 64),
        "largest_rows_gradient": (largest_programs, 64),
    }
    for name, (module, columns) in programs.items():
        for (constants, num_warps), rows in product(list(choices(name, columns=columns)), ("fp32", "bf16")):
            for generation in GENERATIONS:
                compile_program(getattr(module, name), constants, num_warps, generation=generation, rows=rows)
                num_compiled += 1
    print(num_compiled)  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
