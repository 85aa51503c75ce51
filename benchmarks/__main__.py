"""Runs every benchmark: `python -m benchmarks`."""

from benchmarks import (
    check_schemas,
    flatten_torchao,
    inspect_process,
    kernels,
    load_large,
    load_many,
    load_pickles,
    load_shards,
    migrate_in_place,
    migrate_shards,
    migrate_stream,
    quantize,
    save_large,
    unflatten_torchao,
)

_SCRIPTS = (
    inspect_process,
    check_schemas,
    load_many,
    load_pickles,
    unflatten_torchao,
    flatten_torchao,
    quantize,
    kernels,
    load_large,
    load_shards,
    save_large,
    migrate_in_place,
    migrate_stream,
    migrate_shards,
)

for _script in _SCRIPTS:
    print(f"-- {_script.__name__.rpartition('.')[2]}", flush=True)
    _script.main()
