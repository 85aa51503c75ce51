"""How long does it take to save 4 GiB with checksums and fsync, to a fresh name?

Against `safetensors.torch.save_file` of the same bytes followed by fsync, which it does
not do itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from safetensors.torch import save_file

import aoserial
from benchmarks.measure import compare, extra_memory, peak_bytes
from benchmarks.samples import few_large

GIB = 4


def main() -> None:
    state = few_large(GIB)
    plain, metadata = aoserial.flatten(state)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.safetensors"

        def ours() -> None:
            path.unlink(missing_ok=True)
            aoserial.save(state, path)

        def theirs() -> None:
            path.unlink(missing_ok=True)
            save_file(plain, path, metadata=metadata)
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

        compare(
            f"save {GIB} GiB, checksums, fsync / save_file + fsync",
            ours,
            theirs,
            at_most=1.15,
            runs=5,
        )
        extra_memory("extra memory", "benchmarks.save_large", path)


def memory(path: str) -> None:
    """Prints how far saving 1 GiB raises the peak of a process that holds it."""
    state = few_large(1)
    aoserial.save({"warm": next(iter(state.values()))}, path)
    before = peak_bytes()
    aoserial.save(state, path)
    print(peak_bytes() - before)


if __name__ == "__main__":
    memory(sys.argv[1]) if len(sys.argv) > 1 else main()
