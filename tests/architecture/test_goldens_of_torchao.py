"""Which frozen schemas of torchao's types are shown by a file that a release wrote."""

from __future__ import annotations

from support.cases import FIXTURES, all_cases

from aoserial.checkpoint.archives import open_archive
from aoserial.golden.coverage import released
from aoserial.migrations import spell
from aoserial.record.envelope import collect_objects

SCHEMAS = FIXTURES.parent / "schemas"
# Written on hardware that nobody here had, or by code that no release made easy to call. Whoever
# brings a file of one takes it out here; nothing is ever added but with a new schema.
UNSEEN = (
    "AffineFakeQuantizedTensor@1",
    "AffineQuantizedTensor@1",
    "AutoQuantizableLinearWeight@1",
    "BlockSparseAQTTensorImpl@1",
    "BlockSparseLayout@1",
    "CodebookQuantizedPackedTensor@1",
    "CodebookQuantizedTensor@1",
    "DA8W4CPUAQTTensorImpl@1",
    "FbgemmInt4Tensor@1",
    "Float8OpaqueTensor@1",
    "Float8Sparse2x4_1DData1DMetadataTensor@1",
    "GPTQObserverTensor@1",
    "GemliteAQTTensorImpl@1",
    "GemlitePackedLayout@1",
    "Int4GroupwisePreshuffleTensor@1",
    "Int4OpaqueTensorOfDA8W4@1",
    "Int4XPUAQTTensorImpl@1",
    "Int4XPULayout@1",
    "Int8DynamicActInt4WeightCPULayout@1",
    "Int8DynamicallyQuantizedSemiStructuredSparseLinearWeight@1",
    "Int8LutTensor@1",
    "Linear8BitActXBitWeightAQTTensorImpl@1",
    "Linear8BitActXBitWeightLayout@1",
    "LinearActivationWeightObservedTensor@1",
    "MXFP8TrainingWeightWrapperTensor@1",
    "MarlinQQQTensor@1",
    "MarlinQQQTensorOfGroups@1",
    "PerAxis@1",
    "PerGroup@1",
    "PerToken@1",
    "PrototypeFloat8TensorWithOutput@1",
    "StretchedAffineQuantizedTensor@1",
    "UIntxBitPackedTensor@1",
    "WeightWithDelayedFloat8CastTensor@1",
    "WeightWithStaticFloat8CastTensor@1",
)


def shown() -> set[tuple[str, int]]:
    """Types and versions in the golden files, attribute objects too."""
    found: set[tuple[str, int]] = set()
    objects: dict[tuple[str, int], set[str]] = {}
    for case in all_cases():
        for path in case.glob("model.*"):
            with open_archive(path) as file:
                for group in file.catalog.groups:
                    found.add((group.template.type, group.template.version))
                    for value in group.template.attributes.values():
                        collect_objects(value, objects)
    return found | objects.keys()


def test_each_frozen_schema_of_torchao_has_a_golden_but_for_those_listed():
    held = shown()
    lacking = [spell(version) for version in released(SCHEMAS) if version not in held]
    assert [kind for kind in lacking if kind.startswith("torchao.")] == [
        f"torchao.{name}" for name in UNSEEN
    ]
