import pytest

from aoserial.errors import SchemaError
from aoserial.schema import (
    MISSING,
    Field,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)


def test_a_field_without_an_absence_default_is_required():
    assert tensor("qdata").required
    assert attribute("block_size", "list[int]").required
    assert not optional_tensor("zero_point").required
    assert not optional_attribute("zero_domain", "str", "none").required


def test_absence_and_new_objects_may_have_different_defaults():
    field = Field(name="mode", kind="attribute", type="str", absent="old", default="new")
    assert (field.absent, field.new_object_default) == ("old", "new")


def test_new_objects_get_what_absence_means_unless_told_otherwise():
    assert optional_attribute("mode", "str", "old").new_object_default == "old"
    assert attribute("mode", "str").new_object_default is MISSING


def test_none_as_a_default_is_not_the_same_as_no_default():
    assert optional_attribute("activation", "str?", None).absent is None
    assert attribute("activation", "str?").absent is MISSING
    assert not MISSING


@pytest.mark.parametrize("name", ["", "a-b", "class", "1st", "a.", ".b", "a..b", "a.1"])
def test_a_field_name_must_be_an_identifier_or_dotted_ones(name):
    with pytest.raises(SchemaError):
        tensor(name)


@pytest.mark.parametrize("name", ["a", "_private_to_its_class", "tensor_impl.int_data"])
def test_a_field_may_have_the_name_it_has_in_a_pickle(name):
    assert tensor(name).name == name


def test_the_absence_of_a_tensor_can_only_mean_none():
    with pytest.raises(SchemaError, match="only mean None"):
        Field(name="scale", kind="tensor", absent=1.0)


def test_a_default_of_the_wrong_type_is_refused_where_it_is_declared():
    with pytest.raises(ValueError, match="expected int"):
        optional_attribute("bits", "int", "four")


@pytest.mark.parametrize(
    "text", ["integer", "list[]", "list[number]", "enum:", "object:", "int??!"]
)
def test_an_attribute_type_outside_the_grammar_is_refused(text):
    with pytest.raises(SchemaError, match="not an attribute type"):
        attribute("x", text)


def test_two_fields_may_not_claim_one_name_even_through_an_older_name():
    with pytest.raises(SchemaError, match="declared twice: scales"):
        Schema(
            type="acme.T",
            version=1,
            fields=(
                Field(name="scale", kind="tensor", renamed_from=("scales",)),
                tensor("scales"),
            ),
        )


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        (("absent", ("on",)), "'absent' says so, which is no attribute of the type"),
        (("gone", ("on",)), "'gone' says so, which is no attribute of the type"),
        (("qdata", ("on",)), "'qdata' says so, which is no attribute of the type"),
        (("bits", ("on",)), "'bits' says so, which is int, not an enum"),
        (("mode", ()), "for no symbol of 'mode'"),
    ],
)
def test_a_condition_names_an_enum_attribute_and_symbols(when, complaint):
    with pytest.raises(SchemaError, match=complaint):
        Schema(
            type="acme.T",
            version=1,
            fields=(
                tensor("qdata"),
                attribute("bits", "int"),
                attribute("mode", "enum:acme.Mode?"),
                Field(name="gone", kind="attribute", removed_in=1),
                optional_tensor("zero_point", when=when),
            ),
        )


def test_an_attribute_object_has_no_tensors():
    with pytest.raises(SchemaError, match="no tensors"):
        Schema(type="acme.O", version=1, kind="object", fields=(tensor("qdata"),))


@pytest.mark.parametrize(
    "kind", ["Int4Tensor", "acme.", ".x", "acme.4bit", "acme.Int4 Tensor", "a.b\n"]
)
def test_a_type_id_is_two_or_more_dotted_identifiers(kind):
    with pytest.raises(SchemaError, match="not a type id"):
        Schema(type=kind, version=1)


@pytest.mark.parametrize("version", [0, -1, 2**31])
def test_a_version_is_a_positive_32_bit_integer(version):
    with pytest.raises(SchemaError):
        Schema(type="acme.T", version=version)
