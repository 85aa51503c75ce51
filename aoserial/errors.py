"""Every exception aoserial raises: what went wrong as data, and where as a path.

All derive from `AoserialError`; each is also the builtin a caller would catch. The message says
what was found and what was expected; the location says where, and is filled in on the way up by
whoever knows the next step of it (`locating`). Rendering for people lives in the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Where in a checkpoint: file, shard, tensor name, field of that tensor."""

    file: str | None = None
    shard: str | None = None
    name: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        steps = (self.file, self.shard, self.name, self.field)
        return ": ".join(escape(step) for step in steps if step is not None)


def escape(text: str) -> str:
    """`text` with control characters and other unprintables shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class AoserialError(Exception):
    """Base of all errors of this library.

    Args:
        message: what was found and what was expected, one or two sentences.
        facts: the same as data, kept as attributes; each subclass annotates its own.
    """

    location: Location

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.location = Location()
        for key, value in facts.items():
            setattr(self, key, value)

    @property
    def message(self) -> str:
        return str(self.args[0])

    def add(self, clause: str) -> None:
        """Adds to the message."""
        self.args = (f"{self.message}{clause}", *self.args[1:])

    def locate(self, **steps: str | None) -> Self:
        """Fills in the steps of the location that are not known yet."""
        known = {key for key in steps if getattr(self.location, key) is not None}
        self.location = replace(
            self.location, **{key: step for key, step in steps.items() if key not in known}
        )
        return self

    def relocate(self, **steps: str | None) -> Self:
        """Sets these steps of the location, whatever they were."""
        self.location = replace(self.location, **steps)
        return self

    def __str__(self) -> str:
        where = str(self.location)
        return f"{where}: {self.message}" if where else self.message


@contextmanager
def locating(**steps: str | None) -> Iterator[None]:
    """Adds these steps to the location of every aoserial error that passes through."""
    try:
        yield
    except AoserialError as error:
        error.locate(**steps)
        raise


class Faults(AoserialError, ExceptionGroup[AoserialError]):  # noqa: N818 - part of the contract
    """Several faults of one file, reported together (`.exceptions`)."""

    def __new__(cls, message: str, faults: Sequence[AoserialError]) -> Self:
        return super().__new__(cls, message, list(faults))

    def __init__(self, message: str, faults: Sequence[AoserialError]) -> None:
        AoserialError.__init__(self, message)
        self.args = (message, list(faults))

    def derive(self, excs: Sequence[AoserialError]) -> Faults:  # type: ignore[override]
        return Faults(self.message, excs)

    def locate(self, **steps: str | None) -> Self:
        for fault in self.exceptions:
            if isinstance(fault, AoserialError):
                fault.locate(**steps)
        return super().locate(**steps)

    def relocate(self, **steps: str | None) -> Self:
        for fault in each_of(self):
            fault.relocate(**steps)
        return super().relocate(**steps)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {fault}" for fault in self.exceptions)])


def raise_all(message: str, faults: Sequence[AoserialError]) -> None:
    """Raises the one fault itself, several as `Faults`, none not at all."""
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise Faults(message, faults)


def each_of(error: AoserialError) -> list[AoserialError]:
    """The faults that an error stands for: itself, or all that it gathers."""
    if isinstance(error, Faults):
        return [fault for fault in error.exceptions if isinstance(fault, AoserialError)]
    return [error]


class OptionError(AoserialError, ValueError):
    """An argument whose value is none of those the function takes."""


# -- bytes --------------------------------------------------------------------------------------


class FormatError(AoserialError, ValueError):
    """The bytes are not what their format allows."""


class HeaderError(FormatError):
    """A safetensors header breaks the format's rules."""


class ContainerError(FormatError):
    """A zip, tar or legacy torch.save file breaks the rules of its container."""


class PickleError(FormatError):
    """A pickle stream is malformed, or gives a function of torch's something it never takes.

    `at` is the position of the opcode, from the start of the pickle.
    """

    at: int


class BoundsError(FormatError):
    """A tensor reaches outside its own storage, or a storage is not as large as the file says."""


class ShardIndexError(FormatError):
    """The index of a sharded checkpoint is malformed, or does not fit the shards."""


class EnvelopeError(FormatError):
    """aoserial's own metadata in a file is malformed or contradicts the file."""


class LimitError(AoserialError, ValueError):
    """A budget that bounds hostile input is spent."""

    limit: str
    allowed: int
    found: int


class IntegrityError(AoserialError, ValueError):
    """A digest or checksum does not match the bytes."""


class ChangedWhileReadingError(AoserialError, RuntimeError):
    """The file was replaced or edited between opening and reading it."""


class PathError(AoserialError, OSError):
    """The path is not something aoserial reads or writes: a FIFO, a device, a folder …"""


class MissingFileError(PathError, FileNotFoundError):
    """There is no such file."""


class MissingShardError(MissingFileError):
    """The index of a sharded checkpoint names a file that is not there."""


class AmbiguousFolderError(PathError):
    """A folder holds several checkpoints, or none, and no index says which is meant.

    `candidates` are the names of its files that are checkpoints.
    """

    candidates: tuple[str, ...]


class SaveError(AoserialError, OSError):
    """Writing failed.

    `state` says what is on disk: `unchanged`; `renamed, not known durable`. After a header was
    rewritten in place also `rewritten, journal kept`; and `half written, journal kept` when not
    even the old header could be put back: it is read from the journal beside the file then.
    """

    state: str


# -- names and parts ----------------------------------------------------------------------------


class TensorNameError(AoserialError, ValueError):
    """A tensor name that cannot be stored: empty, too long, control characters, reserved."""


class UnknownNameError(AoserialError, KeyError):
    """The checkpoint has no tensor of that name."""


class NotARecordError(AoserialError, KeyError):
    """The name is a plain tensor, which has no record."""


class MissingPartError(AoserialError, KeyError):
    """A record declares a part that the file does not hold."""


class LeftoverError(AoserialError, ValueError):
    """Tensors that belong to no record, although their names say they should."""


class CollisionError(AoserialError, ValueError):
    """Two things want the same name or key."""


# -- types, versions, fields --------------------------------------------------------------------


class SchemaError(AoserialError, TypeError):
    """A schema, class or migration is declared wrongly; a bug of its author, not of a file."""


class UnknownTypeError(AoserialError, LookupError):
    """No schema is registered for a type id."""

    type: str


class VersionError(AoserialError, ValueError):
    """A version, envelope or required feature that this reader does not know."""

    found: object
    supported: object


class DriftError(AoserialError, ValueError):
    """Same type and version, but the writer's schema was another one."""


class EraError(AoserialError, ValueError):
    """An unversioned record fits no known era, or more than one."""

    candidates: tuple[str, ...]


class FieldError(AoserialError, ValueError):
    """A field's value lies outside the schema: dtype, rank, shape, type or range."""


class MissingFieldError(FieldError, KeyError):
    """A required field is absent."""


class UnknownFieldError(FieldError):
    """A field that the schema does not know, or whose name was removed."""


class ReservedFieldError(UnknownFieldError):
    """A name that was removed and may not come back, or an alias beside what replaced it."""


# -- migrations ---------------------------------------------------------------------------------


class MigrationError(AoserialError, ValueError):
    """A chain with a gap, or a step whose result is not what it declared."""


class LossyMigrationError(MigrationError):
    """A step that drops information was not allowed to run."""


# -- tensors ------------------------------------------------------------------------------------


class InertError(AoserialError, TypeError):
    """Computing with a tensor whose type is unknown or whose bytes have no public meaning."""


class OpaqueBytesError(AoserialError, ValueError):
    """A weight whose result no public arithmetic gives, so that it stays inert, as it is stored.

    Its codes lie in the order of one vendor's kernel, the activation goes through a function that
    is not known, or it is a stack of experts of a type that has none.
    """


class UnregisteredClassError(AoserialError, TypeError):
    """A tensor subclass without a schema: it is never flattened silently."""


class UnsupportedTensorError(AoserialError, TypeError):
    """A tensor that cannot be stored as it is: sparse, meta, conjugated, a dtype without a name."""


class QuantizationError(AoserialError, ValueError):
    """Values that no code stands for: an infinity, NaN, or something that is no weight."""


class PackingError(AoserialError, ValueError):
    """Values of a weight that a kernel cannot take, as NaN codes."""


class ActivationError(AoserialError, ValueError):
    """An activation that a weight cannot be multiplied by: its dtype, rank, length or device."""


class BlockCutError(AoserialError, ValueError):
    """A slice that would cut through a quantization block."""


class UnsupportedOperationError(AoserialError, NotImplementedError):
    """An operation that a quantized tensor does not have."""
