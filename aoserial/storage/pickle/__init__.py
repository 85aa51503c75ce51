"""torch.save files of every release, read without running them. Torch-free to import.

Four stages, each of which trusts only what the one before has checked:

1. the container (`zip` and `archive`, `legacy`, `tar`), chosen by the first bytes alone;
2. the interpreter (`machine`, `opcodes`, `interpreter`) runs the pickle and tells a `builder` what
   it asks for, which alone makes inert `values` of everything;
3. the builder of `recognise`, with the tables in `plain` and `rebuild`, makes typed values and
   `tensors` of what it knows; what is unknown becomes an `ObjectValue`, never an error;
4. `storages`: bytes of tensors, mapped or read when asked for.

And the way back: `writing` says a tree of values as a pickle, `writer` puts it into an archive.

    with PickleFile.open("model.pt") as file:
        file.container                  # "zip", "legacy" or "tar"
        file.tree                       # dicts and lists with their own keys
        for name, value in file.tensors():      # "state.0.exp_avg", in order
            match value:
                case StoragePart():     # .dtype .shape .stride .offset .requires_grad; .read()
                    value.storage       # one StorageRef a storage: identity shows sharing,
                    value.place         # and equal places show ties
                case ParameterValue():  # .data .requires_grad .state
                    ...
                case WrapperSubclass(): # .path .dtype .shape .device; .fields by name
                    ...
                case TensorSubclass() | TorchTensor() | ArrayPart():
                    ...
        file.verify()                   # faults of storages against their CRC-32
    scan("model.pt")                    # what plain torch.load would import and call:
                                        # .findings, .fault, .runs_code
    write_archive("copy.pt", file.tree) # means the same, unknown objects included
"""

from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.memory import MemoryStorage
from aoserial.storage.pickle.paths import children, named_tensors, tensors_inside
from aoserial.storage.pickle.reader import PickleFile
from aoserial.storage.pickle.risks import Risk, risk_of
from aoserial.storage.pickle.scan import Finding, Report, scan
from aoserial.storage.pickle.storages import Storage, StorageRef
from aoserial.storage.pickle.tensors import (
    ArrayPart,
    ParameterValue,
    StoragePart,
    TensorSubclass,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
    is_tensor,
)
from aoserial.storage.pickle.values import (
    EnumValue,
    ExtensionCode,
    Key,
    Name,
    ObjectValue,
    Partial,
    Rebuilt,
    Reference,
    StateDict,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    Value,
    fields_of,
)
from aoserial.storage.pickle.writer import Saved, write_archive
from aoserial.storage.pickle.writing import Emitted, emit

__all__ = [
    "PickleFile",
    "scan",
    "Report",
    "Finding",
    "Risk",
    "risk_of",
    "Limits",
    "write_archive",
    "emit",
    "Emitted",
    "Saved",
    "Storage",
    "StorageRef",
    "MemoryStorage",
    "StoragePart",
    "ArrayPart",
    "TypedStorage",
    "WrapperSubclass",
    "TensorSubclass",
    "ParameterValue",
    "TorchTensor",
    "is_tensor",
    "Value",
    "Name",
    "TorchDtype",
    "TorchLayout",
    "TorchDevice",
    "TorchSize",
    "StateDict",
    "Key",
    "EnumValue",
    "ObjectValue",
    "Partial",
    "Rebuilt",
    "ExtensionCode",
    "Reference",
    "fields_of",
    "children",
    "named_tensors",
    "tensors_inside",
]
