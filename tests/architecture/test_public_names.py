"""What `aoserial` offers is what it says it offers."""

import aoserial


def test_every_public_name_can_be_had():
    for name in aoserial.__all__:
        assert getattr(aoserial, name) is not None, name


def test_every_lazy_name_is_public_and_the_other_way_round():
    eager = {"AoserialError", "Faults", "__version__", "kernels", "testing", "torchao"}
    lazy = set(aoserial._HOMES) - {"_rebuild"}  # which only pickles name
    assert lazy | eager == set(aoserial.__all__)


def test_every_error_is_ours_and_also_a_builtin_one():
    from aoserial import errors

    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.AoserialError)
    ]
    assert len(classes) > 20
    for cls in classes:
        builtins = [base for base in cls.__mro__ if base.__module__ == "builtins"]
        assert cls is errors.AoserialError or builtins[0] is not Exception, cls
