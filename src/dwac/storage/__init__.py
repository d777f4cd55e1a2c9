"""The model folder on disk: versioned, checked, written whole or not at all, and never pickle. Internal.

    write_model("model", config={"classes": [encode_value(label) for label in labels]}, tensors=network.state_dict())
    stored = read_model("model")                  # .config .tensors .examples

Plain values in, plain values out: nothing here depends on the estimator. For the design of the folder, see
docs/decisions/0006-model-folder.md.
"""

from dwac.storage.files import replace_file
from dwac.storage.folder import COLUMNS, MANIFEST, Stored, fingerprint, read_model, write_model
from dwac.storage.hub import local_folder
from dwac.storage.tensors import FileRows, RowsWriter, tensor_rows
from dwac.storage.values import decode_value, encode_value

__all__ = [
    "COLUMNS",
    "MANIFEST",
    "FileRows",
    "RowsWriter",
    "Stored",
    "decode_value",
    "encode_value",
    "fingerprint",
    "local_folder",
    "read_model",
    "replace_file",
    "tensor_rows",
    "write_model",
]
