"""Every torchao class that is found in pickles: one table, put together from a file a family."""

from __future__ import annotations

from aoserial.torchao import (
    affine,
    firstborn,
    flat,
    float8,
    integers,
    microscaling,
    opaque,
    prototypes,
    settings,
    training,
    wrappers,
)
from aoserial.torchao.forms import PickledEnum, PickledObject, PickledType

CLASSES: tuple[PickledType, ...] = (
    *affine.CLASSES,
    *wrappers.CLASSES,
    *float8.CLASSES,
    *integers.CLASSES,
    *firstborn.CLASSES,
    *flat.CLASSES,
    *microscaling.CLASSES,
    *opaque.CLASSES,
    *prototypes.CLASSES,
    *training.CLASSES,
)

OBJECTS: tuple[PickledObject, ...] = (
    *settings.OBJECTS,
    *affine.OBJECTS,
    *float8.OBJECTS,
    *integers.OBJECTS,
    *microscaling.OBJECTS,
    *training.OBJECTS,
)

ENUMS: tuple[PickledEnum, ...] = (
    *settings.ENUMS,
    *affine.ENUMS,
    *integers.ENUMS,
    *microscaling.ENUMS,
    *opaque.ENUMS,
)
