"""Runs every benchmark: `python -m benchmarks`."""

from benchmarks import inspect_process, load_large, load_many, save_large, unflatten_torchao

for _script in (inspect_process, load_many, unflatten_torchao, load_large, save_large):
    _script.main()
