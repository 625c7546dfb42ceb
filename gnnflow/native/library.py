"""The shared library and the arguments of its functions. Calls release the interpreter's lock."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

_LIBRARY = Path(__file__).with_name("_native.so")
_KINDS = {"A": ctypes.c_void_p, "F": ctypes.c_float, "K": ctypes.c_uint64, "N": ctypes.c_int64, "T": ctypes.c_int}
# arguments, as native/*.c declare them: N a number, F a fraction, K a key, A an address, T the number of threads
_FUNCTIONS = {
    "gnnflow_use_threads": "A",
    "gnnflow_use_products": "A",
    "gnnflow_affine": "NANAANAANNAANT",
    "gnnflow_affine_gradient": "NANAAANAANNAAAANT",
    "gnnflow_sums": "NAAANANANNNAANT",
    "gnnflow_joined_sums": "NAAAAANANANNNAAT",
    "gnnflow_products": "NAANANANNNAT",
    "gnnflow_maxima": "NAANANANNNAAT",
    "gnnflow_maxima_gradient": "NAAANAANAANNAT",
    "gnnflow_attention": "NAANAAAFNAAANNNAAAANT",
    "gnnflow_joined_attention": "NAAAANAAFNAANNNAAAAAAT",
    "gnnflow_attention_gradient": "NANAAANAAAFNAAAAAAANNNAAAAAAANT",
    "gnnflow_gates": "NAAANAAAANAAANT",
    "gnnflow_cross_entropy": "NAAAAT",
    "gnnflow_dropout": "NAANFAAT",
    "gnnflow_dropout_gradient": "NAAFAT",
    "gnnflow_elu": "NAAT",
    "gnnflow_elu_gradient": "NAAAT",
    "gnnflow_mixture": "NANNAAANAAANT",
    "gnnflow_mixture_gradient": "NAANNAANAAAAANT",
    "gnnflow_transpose": "NAANAAA",
    "gnnflow_number": "NAANAA",
    "gnnflow_number_sources": "NANANAAAA",
    "gnnflow_pieces": "NAAAAAAAA",
    "gnnflow_count_ranks": "NAAAAAA",
    "gnnflow_walks": "NNAKAAAANNNAAAT",
    "gnnflow_visit_shares": "NNAAAAAAT",
    "gnnflow_occurrences": "NAA",
    "gnnflow_order": "NANNAAA",
    "gnnflow_group": "NNAAAA",
    "gnnflow_find": "NANANAA",
    "gnnflow_find_owned": "NAAANAAA",
    "gnnflow_place_owned": "NANA",
    "gnnflow_count_codes": "NNANAA",
    "gnnflow_hash": "NAA",
    "gnnflow_hash_texts": "NAAA",
    "gnnflow_number_pairs": "NAAA",
    "gnnflow_edge_keys": "NAAAKA",
    "gnnflow_pair_keys": "NAAAAKA",
    "gnnflow_find_texts": "NAAANANAAAA",
    "gnnflow_widen": "NNANNAAAAT",
}
_ANSWERS = {
    "gnnflow_transpose": ctypes.c_int,
    "gnnflow_number": ctypes.c_int64,
    "gnnflow_number_sources": ctypes.c_int64,
    "gnnflow_pieces": ctypes.c_int64,
    "gnnflow_walks": ctypes.c_int,
}  # the others return nothing


@cache
def core() -> ctypes.CDLL | None:
    """Return the native core, or None where it was not built for this platform."""
    try:
        return load(_LIBRARY)
    except OSError:
        return None


def load(path: Path) -> ctypes.CDLL:
    """Return the core in a file. Raises OSError where it is not for this platform."""
    loaded = ctypes.CDLL(str(path))
    for name, kinds in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.argtypes = [_KINDS[kind] for kind in kinds]
        function.restype = _ANSWERS.get(name)
    return loaded


def remark() -> str:
    """Return "" where the core is loaded, else a line about the cost of its absence."""
    if core() is not None:
        return ""
    return (
        "the native kernels were not built (no C compiler when gnnflow was installed): results are the same to "
        "rounding, and an epoch takes several times as long; install gcc, then gnnflow again"
    )
