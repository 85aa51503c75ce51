"""Runs a pickle into inert values: nothing is imported, looked up, called or hashed for it.

Torch-free. The file's word reaches no `getattr`, no import and no call: a test reads the source of
this package to make sure. Time is linear in the pickle, memory bounded by `Limits`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aoserial.errors import AoserialError, PickleError
from aoserial.storage.collecting import collector_paused
from aoserial.storage.pickle.builder import Builder
from aoserial.storage.pickle.limits import Limits, spent
from aoserial.storage.pickle.machine import Machine
from aoserial.storage.pickle.opcodes import HANDLERS, NAMES
from aoserial.storage.pickle.opcodes.stack import Stopped
from aoserial.storage.pickle.values import Value

# Opcodes between two looks at the budgets. Each makes at most one value, so that many may be
# exceeded by; a look costs about as much as ten opcodes.
_STRIDE = 8192

# The opcodes that `_run` does itself
_BINGET, _LONG_BINPUT, _BININT1 = b"hrK"
_UNSIGNED = struct.Struct("<I").unpack_from


@dataclass(frozen=True, slots=True)
class Program:
    """A pickle that was run: what it makes, and the position after its STOP."""

    root: Value
    end: int


def interpret(data: bytes, builder: Builder, limits: Limits = Limits()) -> Program:  # noqa: B008
    """Runs the pickle that these bytes begin with; what comes after its STOP is not looked at.

    Raises:
        PickleError: it is malformed, or what the builder raises.
        TruncatedError: it is cut off.
        LimitError: a budget is spent.
    """
    machine = Machine(data, builder, limits)
    at, left = 0, limits.ops
    with collector_paused():
        try:
            while left > 0:
                at = _run(machine, at, min(_STRIDE, left))
                left -= _STRIDE
                machine.check_budgets()
        except Stopped as stopped:
            return _finished(machine, stopped.args[0])
    raise spent("ops", limits.ops, limits.ops + 1)


def interpret_all(data: bytes, builder: Builder, limits: Limits = Limits()) -> Program:  # noqa: B008
    """Runs the pickle that these bytes are, with nothing after it."""
    program = interpret(data, builder, limits)
    if program.end != len(data):
        raise PickleError(f"{len(data) - program.end} bytes follow its STOP at {program.end - 1}")
    return program


def _run(machine: Machine, at: int, count: int) -> int:
    """Runs `count` opcodes from `at` on, and returns where the next one is."""
    data, handlers = machine.data, HANDLERS
    stack, memo, scattered = machine.stack, machine.memo, machine.scattered
    try:
        for _ in range(count):
            code = data[at]
            at += 1
            # Three opcodes in five are one of these, and do less than the call of a handler costs.
            # They do what their handlers do; where they would not, the handler is called.
            if code == _BINGET and (index := data[at]) < len(memo):
                stack.append(memo[index])
                at += 1
            elif code == _LONG_BINPUT and _UNSIGNED(data, at)[0] == len(memo) and not scattered:
                memo.append(stack[-1])
                at += 4
            elif code == _BININT1:
                stack.append(data[at])
                at += 1
            else:
                at = handlers[code](machine, at)
                stack = machine.stack
    except IndexError:
        message = f"{_position(data, at - 1)} takes more from the stack than is on it"
        raise PickleError(message, at=at - 1).locate(name=machine.whereabouts()) from None
    except PickleError as error:
        error.args = (f"{_position(data, at - 1)}: {error.message}",)
        error.at = at - 1
        raise error.locate(name=machine.whereabouts()) from None
    except AoserialError as error:
        raise error.locate(name=machine.whereabouts()) from None
    return at


def _position(data: bytes, at: int) -> str:
    return f"the pickle's {NAMES[data[at]]} at byte {at}"


def _finished(machine: Machine, end: int) -> Program:
    machine.check_budgets()
    if len(machine.stack) != 1 or machine.below:
        waiting = len(machine.stack) + sum(map(len, machine.below))
        raise PickleError(f"it stops with {waiting} values on its stack, not one", at=end - 1)
    return Program(machine.stack[0], end)
