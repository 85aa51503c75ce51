"""Which types there are: type id → head schema, frozen documents, enums. Torch-free."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from aoserial.errors import SchemaError, UnknownTypeError, locating
from aoserial.schema.document import read_document
from aoserial.schema.schema import EnumSchema, Schema

ENTRY_POINTS = "aoserial.types"


@dataclass(kw_only=True)
class Type:
    """A registered type.

    Attributes:
        head: its newest version.
        owner: what declared it; the same owner may replace the declaration (notebooks do).
        frozen: folder that holds `<type id>/<version>.json`, None when there is none.
        older: earlier versions that are declared in code, beside those in the folder.
    """

    head: Schema
    owner: str
    frozen: Path | None = None
    older: tuple[Schema, ...] = ()

    @cached_property
    def documents(self) -> dict[int, Schema]:
        """The earlier schemas by version: those declared in code, and the frozen ones.

        Raises:
            SchemaError: a file there that is no document, or that of another type or version.
        """
        schemas = list(self.older)
        folder = self.frozen / self.head.type if self.frozen else None
        if folder is not None and folder.is_dir():
            schemas += [_frozen(path, self.head.type) for path in sorted(folder.glob("*.json"))]
        return {schema.version: schema for schema in schemas}

    def at(self, version: int) -> Schema | None:
        """The schema of that version: the head's, a frozen one, or None where none was given."""
        return self.head if version == self.head.version else self.documents.get(version)


@dataclass
class Registry:
    """A table of types and enums. Plug-ins are looked for once, when an id is not found.

    Attributes:
        families: what an id begins with, up to its first dot → the module that declares such types
            when it is imported, which nobody need do before one is met.
    """

    types: dict[str, Type] = field(default_factory=dict)
    enums: dict[str, EnumSchema] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)
    plugins: bool = False
    _loaded: bool = False

    def add(
        self,
        schema: Schema,
        *,
        owner: str,
        frozen: Path | None = None,
        older: tuple[Schema, ...] = (),
    ) -> None:
        """Registers `schema` as the head of its type.

        Args:
            owner, frozen, older: as in `Type`.

        Raises:
            SchemaError: the id belongs to another owner.
        """
        taken = self.types.get(schema.type)
        if taken is not None and taken.owner != owner:
            raise SchemaError(f"{schema.type} is already registered by {taken.owner}")
        self.types[schema.type] = Type(head=schema, owner=owner, frozen=frozen, older=older)

    def add_enum(self, schema: EnumSchema) -> None:
        taken = self.enums.get(schema.type)
        if taken is not None and taken != schema:
            raise SchemaError(f"enum {schema.type} is already registered with other symbols")
        self.enums[schema.type] = schema

    def find(self, type_id: str) -> Type | None:
        """The type of that id, or None; its family or plug-ins may register it first."""
        if type_id not in self.types:
            self.load_family(type_id.partition(".")[0])
        if type_id not in self.types:
            self.load_plugins()
        return self.types.get(type_id)

    def load_family(self, prefix: str) -> None:
        """Imports what declares the types whose ids begin so, where that is known."""
        if prefix in self.families:
            importlib.import_module(self.families[prefix])

    def schema(self, type_id: str, version: int) -> Schema | None:
        """The schema of a type's version, None when type or version is not known."""
        found = self.find(type_id)
        return found.at(version) if found else None

    def __getitem__(self, type_id: str) -> Type:
        found = self.find(type_id)
        if found is None:
            raise UnknownTypeError(f"no type {type_id!r} is registered", type=type_id)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def load_plugins(self) -> None:
        """Imports what other packages declare as types, once."""
        if self.plugins and not self._loaded:
            from importlib import metadata  # 20 ms that `aoserial inspect` need not pay

            self._loaded = True  # first, since a plug-in may look types up itself
            for entry_point in metadata.entry_points(group=ENTRY_POINTS):
                entry_point.load()


def _frozen(path: Path, type_id: str) -> Schema:
    """The schema of a document, which must be the one that its path says."""
    with locating(file=str(path)):
        schema = read_document(path.read_bytes())
        expected = f"{type_id}@{path.stem}"
        if not isinstance(schema, Schema) or str(schema) != expected:
            raise SchemaError(f"is the document of {schema}, expected that of {expected}")
        return schema


REGISTRY = Registry(plugins=True)


@cache
def builtin_documents() -> Path | None:
    """The frozen schemas that ship: in the package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_schemas", package.parent / "schemas"):
        if folder.is_dir():
            return folder
    return None
