"""Every opcode of pickle protocols 0 to 5, as what it does to the machine. Torch-free.

The meaning of each is that of CPython's `pickle.py` and `pickletools.py`, with this difference:
where pickle would import, call or set something, the builder is asked for a value that says so. An
opcode takes the machine and the position of its operand, and returns the position after it. What
does not fit raises `PickleError`, or IndexError where the stack has too little on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from aoserial.errors import PickleError
from aoserial.storage.pickle.machine import Machine
from aoserial.storage.pickle.opcodes import calls, containers, scalars, stack

Opcode: TypeAlias = Callable[[Machine, int], int]

OPCODES: dict[bytes, tuple[str, Opcode]] = {
    **scalars.OPCODES,
    **containers.OPCODES,
    **stack.OPCODES,
    **calls.OPCODES,
}


def _unknown(code: int) -> Opcode:
    def refuse(_: Machine, at: int) -> int:
        raise PickleError(f"byte {at - 1} is 0x{code:02x}, which is no opcode")

    return refuse


# By the opcode's byte
NAMES = [OPCODES[bytes((code,))][0] if bytes((code,)) in OPCODES else "?" for code in range(256)]
HANDLERS = [
    OPCODES[bytes((code,))][1] if bytes((code,)) in OPCODES else _unknown(code)
    for code in range(256)
]

__all__ = ["OPCODES", "NAMES", "HANDLERS", "Opcode"]
