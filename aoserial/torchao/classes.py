"""Every torchao class that is found in pickles: one table, put together from a file a family."""

from __future__ import annotations

from aoserial.torchao import (
    affine,
    firstborn,
    flat,
    float8,
    int4,
    integers,
    mx,
    nvfp4,
    opaque,
    prototypes,
    settings,
    training,
    uintx,
    wrappers,
)
from aoserial.torchao.forms import PickledEnum, PickledObject, PickledType

CLASSES: tuple[PickledType, ...] = (
    *affine.CLASSES,
    *wrappers.CLASSES,
    *float8.CLASSES,
    *int4.CLASSES,
    *integers.CLASSES,
    *firstborn.CLASSES,
    *flat.CLASSES,
    *mx.CLASSES,
    *nvfp4.CLASSES,
    *opaque.CLASSES,
    *prototypes.CLASSES,
    *training.CLASSES,
    *uintx.CLASSES,
)

OBJECTS: tuple[PickledObject, ...] = (
    *settings.OBJECTS,
    *affine.OBJECTS,
    *float8.OBJECTS,
    *integers.OBJECTS,
    *mx.OBJECTS,
    *nvfp4.OBJECTS,
    *training.OBJECTS,
)

ENUMS: tuple[PickledEnum, ...] = (
    *settings.ENUMS,
    *affine.ENUMS,
    *integers.ENUMS,
    *mx.ENUMS,
    *nvfp4.ENUMS,
    *opaque.ENUMS,
)
