"""The calls behind `import gnnflow`, which the command line makes too.

`calls.py` has the functions, `results.py` what they return. `configs.py` reads a config and its tables, `performing.py`
runs its stages with progress. The package gives `import gnnflow` its names and imports nothing itself: the command line
reports errors (`bugs.py`) and draws progress (`lines.py`) before it needs the rest.
"""
