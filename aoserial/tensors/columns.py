"""Parts that belong to the columns of a weight: `act_pre_scale` and `group_index`."""

from __future__ import annotations

from dataclasses import replace

from aoserial.schema.shapes import Rule
from aoserial.tensors.layout import Layout
from aoserial.tensors.weights import QuantizedWeight


class ColumnParts(QuantizedWeight):
    """A weight that may have them.

    act_pre_scale: scales the activation first (AWQ, SmoothQuant); one number, or [K].
    group_index: [K], the group of each k, for weights quantized in another order of columns
        (act-order). Such columns are in arbitrary groups, so no range of them is a tensor of its
        own, except all.
    """

    def part_rule(self, name: str) -> Rule | None:
        """act_pre_scale has one number, or one for each k, and then follows K."""
        pre_scale = getattr(self, name) if name == "act_pre_scale" else None
        if pre_scale is not None and pre_scale.shape[-1:] == self.shape[-1:]:
            return ("K",)
        return super().part_rule(name)

    def part_layout(self) -> Layout:
        layout = super().part_layout()
        if "group_index" not in layout.parts:
            return layout
        reason = "act-order puts its columns into arbitrary groups (group_index)"
        return replace(layout, indivisible={self.dim() - 1: reason})
