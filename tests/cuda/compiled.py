"""Compile every program for cards of two generations, which needs none of them; prints how many there were.

Run without TRITON_INTERPRET: what is interpreted is not compiled.
"""

from __future__ import annotations

from itertools import product

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gnnflow.kernels.cuda import largest_programs, softmax_programs, sum_programs
from gnnflow.kernels.cuda.launch import Tile

PLACES = (("fp32", 90), ("bf16", 80))  # rows, and the generation of a card
INTEGERS = {
    "offsets", "sources", "edges", "targets", "begins", "piece_targets", "first_pieces", "num_pieces", "hub_targets"
}  # fmt: skip
NUMBERS = {"num_targets", "num_edges", "columns", "heads"}
HEADS = (1, 4)
FACTORS = ((False, False), (True, False), (True, True))  # whether there are coefficients, and whether in another order
WIDTHS = (4, 7, 8, 64, 300)  # each kind of tile, and rows that are not read at once
ROWS = {"values", "left", "right"}  # may be in half precision


def choices(name, *, columns):
    """Yield the constants that a program is compiled with."""
    both = (False, True)
    if name == "sum_rows":
        for heads, (weighted, ordered), divided in product(HEADS, FACTORS, both):
            chosen = {"ORDERED": ordered, "WEIGHTED": weighted, "CHOSEN": ordered and divided}
            yield {**rows_of(heads, columns), **chosen, "DIVIDED": divided, "LONGEST": 512}
    elif name == "largest_rows":
        for heads, weighted, divided in product(HEADS, both, both):
            yield {**rows_of(heads, columns), "WEIGHTED": weighted, "DIVIDED": divided, "LONGEST": 512}
    elif name == "multiply_rows":
        for heads in HEADS:
            tile = Tile.multiplied(heads, columns // heads)
            shape = {"HEADS": heads, "WIDTH": columns // heads, "RIGHT_HEADS": 1, "TILE_EDGES": tile.rows}
            yield {**shape, "TILE_HEADS": tile.heads, "TILE_WIDTH": tile.width}
    elif name.startswith("softmax") and not name.endswith("pieces"):
        yield from choices_of_softmax(name, heads=columns)
    else:
        tile = Tile.multiplied(1, columns)
        yield {"TILE_PIECES": tile.rows, "TILE_COLUMNS": tile.width}


def choices_of_softmax(name, *, heads):
    """Yield the constants that a program of a softmax is compiled with."""
    both = (False, True)
    if name == "softmax_rows":
        tile = Tile.added(1, heads)
        for halves, scaled, divided in product(both, both, both):
            flags = {"HALVES": halves, "SCALED": scaled, "DIVIDED": divided, "LONGEST": 512}
            yield {"HEADS": heads, **flags, "TILE_TARGETS": tile.rows, "TILE_HEADS": tile.width}
    else:
        for halves, scaled, dropped in product(both, both, both):
            flags = {"HALVES": halves, "DROPPED": dropped} | ({} if name.endswith("gradient") else {"SCALED": scaled})
            yield {"HEADS": heads, **flags, "TILE": 512}


def rows_of(heads, columns):
    """Return what a program that goes over edges is compiled with for rows of so many heads and columns."""
    tile = Tile.added(heads, columns // heads)
    shape = {"HEADS": heads, "WIDTH": columns // heads, "VALUE_HEADS": 1}
    return {**shape, "TILE_TARGETS": tile.rows, "TILE_HEADS": tile.heads, "TILE_WIDTH": tile.width}


def kind_of(name, rows):
    """Return the type of an argument of a program that reads rows of a type."""
    if name in INTEGERS:
        return "*i64"
    if name in NUMBERS:
        return "i32"
    if name == "slope":
        return "fp32"
    if name.endswith("places"):
        return "*i32"
    return f"*{rows}" if name in ROWS else "*fp32"


def compile_program(program, constants, *, generation, rows):
    """Compile a program with these constants for cards of a generation."""
    names = program.arg_names
    signature = {name: "constexpr" if name in constants else kind_of(name, rows) for name in names}
    given = {(names.index(name),): held for name, held in constants.items()}
    source = ASTSource(program, signature, given)
    triton.compile(source, target=GPUTarget("cuda", generation, 32), options={"num_warps": 1})


def main():
    """Compile all of them."""
    num_compiled = 0
    programs = {
        "sum_rows": (sum_programs, WIDTHS),
        "sum_pieces": (sum_programs, (64,)),
        "multiply_rows": (sum_programs, WIDTHS),
        "softmax_rows": (softmax_programs, (1, 4)),
        "softmax_pieces": (softmax_programs, (4,)),
        "softmax_edges": (softmax_programs, (4,)),
        "softmax_edges_gradient": (softmax_programs, (4,)),
        "largest_rows": (largest_programs, (7, 64)),
        "largest_pieces": (largest_programs, (64,)),
    }
    for name, (module, widths) in programs.items():
        for columns, (rows, generation) in product(widths, PLACES):
            for constants in choices(name, columns=columns):
                compile_program(getattr(module, name), constants, generation=generation, rows=rows)
                num_compiled += 1
    print(num_compiled)  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
