"""Envelopes laid out and read back, and the lies they may tell."""

import json
import re

import pytest

from aoserial.errors import (
    AoserialError,
    CollisionError,
    EnvelopeError,
    Faults,
    IntegrityError,
    LeftoverError,
    MissingPartError,
    VersionError,
)
from aoserial.record import template
from aoserial.record.envelope import Contents, Stored, decode_envelope, lay_out
from aoserial.record.envelope.digest import check_seal, seal
from aoserial.schema import (
    FrozenMap,
    Nested,
    Registry,
    Schema,
    Symbol,
    attribute,
    optional_attribute,
    tensor,
)
from aoserial.storage import SlotPart

REGISTRY = Registry()
REGISTRY.add(
    Schema(
        type="acme.T",
        version=1,
        fields=(
            tensor("qdata"),
            tensor("scale"),
            attribute("block_size", "list[int]"),
            optional_attribute("mode", "str", "none"),
            optional_attribute("extra", "any", None),
        ),
    ),
    owner="test",
)


def stored(**attributes):
    record = template(
        type="acme.T",
        version=1,
        shape=(4, 8),
        dtype="bfloat16",
        attributes=FrozenMap(block_size=(1, 8), **attributes),
        parts={"qdata": ("int8", (4, 8)), "scale": ("float32", (4, 1))},
    )
    return Stored(record=record)


def plain():
    return SlotPart("plain", "float32", (3,))


def sheet(records=None, plain=None, **more):
    contents = {"ties": {}, "trail": [], "metadata": {}, "extra": {}} | more
    contents |= {"records": records or {}, "plain": plain or {}}
    return lay_out(Contents(**contents), REGISTRY)


def catalog_of(sheet, change=None, **options):
    """Reads a sheet back as from a file, after `change` has edited the envelope."""
    metadata = dict(sheet.metadata)
    if change is not None:
        envelope = json.loads(metadata["aoserial"])
        change(envelope)
        metadata["aoserial"] = json.dumps(envelope)
    entries = {key: (part.dtype, part.shape, 0, 0) for key, part in sheet.parts.items()}
    return decode_envelope(metadata, entries, None, **options)


def names(catalog):
    return [name for group in catalog.groups for name in group.members]


ONE = {"m.weight": stored()}


def test_what_is_laid_out_is_read_back():
    catalog = catalog_of(
        sheet(
            {"a.weight": stored(), "b.weight": stored(mode="int")},
            {"a.bias": plain()},
            ties={"c.weight": "a.weight"},
            trail=[{"step": "x"}],
            metadata={"format": "pt", "note": "mine"},
        )
    )
    assert names(catalog) == ["a.weight", "b.weight"]
    assert catalog.groups[1].template.attributes == FrozenMap(block_size=(1, 8), mode="int")
    assert catalog.plain == {"a.bias": "a.bias"}
    assert catalog.ties == {"c.weight": "a.weight"}
    assert catalog.trail == [{"step": "x"}]
    assert catalog.metadata == {"format": "pt", "note": "mine"}
    assert catalog.writer.startswith("aoserial ")


def test_records_that_agree_in_everything_but_their_name_share_one_entry():
    laid = sheet({f"layers.{i}.weight": stored() for i in range(100)})
    envelope = json.loads(laid.metadata["aoserial"])
    assert len(envelope["records"]) == 1
    assert len(catalog_of(laid).groups) == 1


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), (0, False)], ids=str)
def test_equal_values_of_different_types_do_not_share_an_entry(pair):
    laid = sheet({"a": stored(extra=pair[0]), "b": stored(extra=pair[1])})
    values = [group.template.attributes["extra"] for group in catalog_of(laid).groups]
    assert [repr(value) for value in values] == [repr(value) for value in pair]


def test_a_field_that_is_as_its_absence_means_is_not_written():
    envelope = json.loads(sheet({"a": stored(mode="none")}).metadata["aoserial"])
    assert "mode" not in envelope["records"][0]["attributes"]
    plain_one = json.loads(sheet({"a": stored()}).metadata["aoserial"])
    assert envelope["schemas"] == plain_one["schemas"]


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        float("-inf"),
        (1, (2.5, "x"), None, True),
        Symbol("acme.Mode", "fast"),
        Nested("acme.Act", 3, FrozenMap(bits=8, inner=Nested("acme.In", 1, FrozenMap()))),
        "ünïcode \n \x00",
        2**70,
    ],
    ids=repr,
)
def test_every_kind_of_value_survives_the_file(value):
    (group,) = catalog_of(sheet({"a": stored(extra=value)})).groups
    assert group.template.attributes["extra"] == value


def test_the_layout_depends_on_the_input_alone():
    contents = {"b.weight": stored(), "a.weight": stored(mode="x")}
    assert sheet(contents, {"p": plain()}).metadata == sheet(contents, {"p": plain()}).metadata


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "plains"),
    [
        (["weight"], []),
        (["m.weight", "m.weight_g"], []),
        (["m.weight"], ["m._weight_qdata"]),
        (["m.weight"], ["m._weight_qdata", "m._weight_qdata~2"]),
        (["m.weight"], ["m.weight_g", "m._weight_extra"]),
        (["m.a", "m.a_b"], ["m._a_b_c"]),
        ([".x", "x", "a..b", "_"], ["_x_scale"]),
    ],
)
def test_names_that_make_the_same_keys_are_kept_apart(records, plains):
    laid = sheet({name: stored() for name in records}, {name: plain() for name in plains})
    assert len(laid.parts) == 2 * len(records) + len(plains)
    catalog = catalog_of(laid)
    assert sorted(names(catalog)) == sorted(records)
    assert sorted(catalog.plain) == sorted(plains)


def test_one_name_for_a_plain_and_a_quantized_tensor_is_refused_on_writing():
    with pytest.raises(CollisionError, match="both a plain and a quantized"):
        sheet(ONE, {"m.weight": plain()})


# -- lies ------------------------------------------------------------------------------------------


def lie(change, error, match):
    with pytest.raises(error) as caught:
        catalog_of(sheet(ONE, {"m.bias": plain()}), change)
    assert re.search(match, str(caught.value))


def entry(envelope):
    return envelope["records"][0]


@pytest.mark.parametrize("version", [-1, 0, 2**31, "1", "1.0\n", 1.0, True, None, [1]], ids=repr)
def test_a_schema_version_that_is_no_version_is_refused(version):
    lie(lambda e: e["schemas"][0].update(version=version), EnvelopeError, "must be an integer")


@pytest.mark.parametrize("version", [-1, 0, "1", 1.0, True, None], ids=repr)
def test_an_envelope_version_that_is_no_version_is_refused(version):
    lie(lambda e: e.update(envelope=version), EnvelopeError, "envelope")


def test_a_newer_envelope_is_refused_and_says_who_wrote_it_and_what_would_read_it():
    lie(
        lambda e: e.update(envelope=2, writer="aoserial 9.0"),
        VersionError,
        "version 2, written by aoserial 9.0; this reader knows up to 1: a newer aoserial",
    )


def test_an_unknown_required_feature_is_refused_by_name():
    lie(lambda e: e.update(requires=["sparse"]), VersionError, "requires 'sparse'.*newer aoserial")


def test_unknown_envelope_keys_are_kept():
    assert catalog_of(sheet(ONE), lambda e: e.update(future={"x": 1})).extra == {"future": {"x": 1}}
    kept = json.loads(sheet(ONE, extra={"future": {"x": 1}}).metadata["aoserial"])
    assert kept["future"] == {"x": 1}


@pytest.mark.parametrize("index", [1, -1, 2**70, "0", None, True], ids=repr)
def test_an_unknown_schema_index_is_refused(index):
    lie(lambda e: entry(e).update(schema=index), EnvelopeError, "schema")


@pytest.mark.parametrize("kind", ["T", "", "os.path; import os", "acme.T\n", 3], ids=repr)
def test_a_type_that_is_no_type_id_is_refused(kind):
    lie(lambda e: e["schemas"][0].update(type=kind), EnvelopeError, "type")


def test_a_declared_part_that_the_file_lacks_is_an_error_naming_it():
    laid = sheet(ONE)
    del laid.parts["m._weight_scale"]
    with pytest.raises(MissingPartError, match="m.weight: scale: the record declares this part"):
        catalog_of(laid, lambda e: e.pop("crc32"))


def test_all_missing_parts_come_in_one_error():
    laid = sheet({"a": stored(), "b": stored()})
    laid.parts.clear()
    with pytest.raises(Faults) as caught:
        catalog_of(laid, lambda e: e.pop("crc32"))
    assert len(caught.value.exceptions) == 4
    assert all(isinstance(fault, MissingPartError) for fault in caught.value.exceptions)


def test_a_part_in_two_records_is_an_error():
    both = {"a.weight": stored(), "b.weight": stored()}
    with pytest.raises(AoserialError) as caught:
        catalog_of(
            sheet(both),
            lambda e: entry(e).update(keys={"b.weight": {"qdata": "a._weight_qdata"}}),
        )
    assert "claimed by two records" in str(caught.value)


def test_a_leftover_in_a_records_namespace_is_an_error():
    laid = sheet(ONE)
    laid.parts["m._weight_zero_point"] = plain()
    with pytest.raises(
        LeftoverError, match="m._weight_zero_point: looks like a part of 'm.weight'"
    ):
        catalog_of(laid, lambda e: e.pop("crc32"))


def test_a_tensor_more_or_less_than_there_are_checksums_is_an_error():
    laid = sheet(ONE)
    laid.parts["other"] = plain()
    with pytest.raises(EnvelopeError, match="2 checksums, but the file has 3 tensors"):
        catalog_of(laid)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda e: entry(e).update(parts=["qdata", "qdata"]), "'qdata' twice"),
        (lambda e: entry(e).update(parts=[]), "lists no parts"),
        (lambda e: entry(e).update(parts=["qdata", 1]), "must be strings"),
        (lambda e: entry(e).update(names=["m.weight", "m.weight"]), "'m.weight' twice"),
        (lambda e: e["records"].append(entry(e)), "two records have this name"),
        (lambda e: entry(e).update(shape=[4, -8]), "not a shape"),
        (lambda e: entry(e).update(shape=[4, 2**63]), "not a shape"),
        (lambda e: entry(e).update(shape=[1] * 65), "not a shape"),
        (lambda e: entry(e).update(shape="48"), "must be an array"),
        (lambda e: entry(e).update(dtype="float7"), "unknown dtype 'float7'"),
        (lambda e: entry(e).update(attributes=[]), "must be an object"),
        (lambda e: entry(e)["attributes"].update(x={"$object": "a"}), "not an attribute value"),
        (lambda e: entry(e)["attributes"].update(x={"plain": "dict"}), "not an attribute value"),
        (lambda e: entry(e).update(keys={"n": {}}), "records that it does not name"),
        (lambda e: entry(e).update(keys={"m.weight": {"z": "k"}}), "parts that it does not have"),
        (lambda e: e.update(ties={"x": "nowhere"}), "is tied to 'nowhere'"),
        (lambda e: e.update(ties={"m.bias": "m.weight"}), "both a tensor and tied"),
        (lambda e: e.update(ties={"x": 1}), "must be strings"),
        (lambda e: e.update(plain=["ghost"]), "lists this plain tensor"),
        (lambda e: e.update(crc32="!"), "not base64"),
        (lambda e: e.update(trail=["x"]), "must be an object"),
        (lambda e: e.pop("schemas"), "has no 'schemas'"),
        (lambda e: e.pop("requires"), "has no 'requires'"),
    ],
)
def test_an_envelope_that_does_not_add_up_is_refused(change, match):
    lie(change, AoserialError, match)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"envelope": NaN}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"envelope": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_not_an_envelope_is_refused_as_such(text):
    with pytest.raises(EnvelopeError):
        decode_envelope({"aoserial": text}, {}, None)


def test_values_nested_too_deep_are_refused():
    deep = []
    for _ in range(40):
        deep = [deep]
    lie(lambda e: entry(e)["attributes"].update(x=deep), EnvelopeError, "nested more than 32 deep")


# -- a shard ---------------------------------------------------------------------------------------


def test_in_a_shard_what_lacks_parts_waits_and_the_rest_is_ready():
    laid = sheet({"a": stored(), "b": stored()}, {"bias": plain()})
    del laid.parts["_b_scale"]
    catalog = catalog_of(laid, lambda e: e.pop("crc32"), partial=True)
    assert names(catalog) == ["a"]
    assert catalog.pending == {"b": ("_b_qdata",)}
    assert list(catalog.plain) == ["bias"]


# -- the seal --------------------------------------------------------------------------------------


def header_of(laid):
    return json.dumps({"__metadata__": laid.metadata}, separators=(",", ":")).encode() + b"   "


def test_a_sealed_header_proves_itself_and_any_changed_byte_breaks_it():
    header = seal(header_of(sheet(ONE)), [1, 2])
    digest = json.loads(json.loads(header)["__metadata__"]["aoserial"])["header_digest"]
    check_seal(header, digest)
    for place in (1, len(header) // 2, len(header) - 1):
        torn = header[:place] + bytes([header[place] ^ 1]) + header[place + 1 :]
        with pytest.raises(IntegrityError):
            check_seal(torn, digest)


def test_sealing_keeps_the_length():
    header = header_of(sheet(ONE))
    assert len(seal(header, [0xFFFFFFFF, 0])) == len(header)


def test_a_digest_that_is_no_digest_is_refused():
    with pytest.raises(EnvelopeError, match="not a SHA-256"):
        check_seal(header_of(sheet(ONE)), "abc")
