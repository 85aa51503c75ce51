"""Runs a pickle into inert values: nothing is imported, looked up, called or hashed for it.

Torch-free. The file's word reaches no `getattr`, no import and no call: a test reads the source of
this package to make sure. Time is linear in the pickle, memory bounded by `Limits`.
"""

from __future__ import annotations

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
    try:
        for _ in range(count):
            at = handlers[data[at]](machine, at + 1)
    except IndexError:
        message = f"{_position(data, at)} takes more from the stack than is on it"
        raise PickleError(message, at=at).locate(name=machine.whereabouts()) from None
    except PickleError as error:
        error.args = (f"{_position(data, at)}: {error.message}",)
        error.at = at
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
