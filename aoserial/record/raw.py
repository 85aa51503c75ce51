"""The ids in raw records, which `record.pickled` makes of what it knows by its path alone.

In a module of their own, for the tables that read such records and never a pickle.
"""

PREFIX = "pickle."  # before the dotted path of a class
PART = "pickle.part"  # stands for a tensor in a list: Symbol(PART, the name of its part)
NAME = "pickle.name"  # a function or class by name: Symbol(NAME, its path)
