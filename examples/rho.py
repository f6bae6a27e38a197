"""Rho's C API (runtime/RhoC.h, kernels/WeightFileC.h) for Python, by ctypes.

    rho = Rho("librho.so")
    device = rho.make("device_automatic")
    engine = rho.make("engine_create", device, None)

Functions are named without `rho_`. A handle is freed with the last reference to it.
"""

import ctypes
import os

F32, F16, BF16 = range(3)
TEXTS = ["version", "error_text", "error_id", "device_name", "device_target", "module_gemm_name", "gemm_weight_layout",
         "gemm_plan", "gemm_warning", "weight_file_name", "weight_format", "weight_declarations"]
NUMBERS = ["error_count", "module_gemm_count", "buffer_bytes", "gemm_m", "gemm_n", "gemm_k",
           "gemm_packed_weight_bytes", "gemm_workspace_bytes", "gemm_warning_count", "weight_file_count", "weight_n",
           "weight_k"]
# Functions that make another kind of handle than the one they are named after.
KIND_OF = {"device_allocate": "buffer", "device_view": "buffer", "gemm_pack_weights": "buffer",
           "gemm_pack_codes": "buffer", "weight_file_pack": "buffer", "gemm_make_activations": "activations",
           "gemm_view_activations": "activations", "engine_compile": "gemm", "engine_compile_shared": "gemm",
           "engine_compile_sharing": "gemm", "weight_file_open": "weight_file", "weight_file_describe": "weight",
           "weight_file_input_transform": "input_transform"}


class RhoError(RuntimeError):
    """What a function of Rho says of what it was given, and the ids of its diagnostics."""

    def __init__(self, text, ids):
        super().__init__(text)
        self.ids = ids


class Handle:
    """What a function has made, for as long as anything refers to it."""

    def __init__(self, kind, free, pointer):
        self.kind, self._free, self._as_parameter_ = kind, free, ctypes.c_void_p(pointer)

    def __del__(self):
        self._free(self._as_parameter_)


class Rho:
    """The library's functions."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.rho_gemm_predicted_microseconds.restype = ctypes.c_double
        self.lib.rho_gemm_compile_milliseconds.restype = ctypes.c_double
        self.lib.rho_buffer_address.restype = ctypes.c_uint64
        for name in TEXTS:
            getattr(self.lib, "rho_" + name).restype = ctypes.c_char_p
        for name in NUMBERS:
            getattr(self.lib, "rho_" + name).restype = ctypes.c_int64

    def function(self, name, arguments):
        """A function whose first argument, where that is a handle, is of its kind, but for what makes an engine."""
        first = arguments[0] if arguments and name != "engine_create" else None
        if isinstance(first, Handle) and not name.startswith(first.kind + "_"):
            raise TypeError(f"rho_{name} of a handle of rho_{first.kind}")
        return getattr(self.lib, "rho_" + name)

    def get(self, name, *arguments):
        """The text or number that a function returns."""
        found = self.function(name, arguments)(*map(argument, arguments))
        return found.decode(errors="replace") if isinstance(found, bytes) else found

    def call(self, name, *arguments):
        """Calls a function that returns nothing but errors, which are raised."""
        function = self.function(name, arguments)
        function.restype = ctypes.c_void_p
        pointer = function(*map(argument, arguments))
        if pointer:
            error = Handle("error", self.lib.rho_error_free, pointer)
            raise RhoError(self.get("error_text", error),
                           [self.get("error_id", error, i) for i in range(self.get("error_count", error))])

    def parse(self, text, name="<memory>"):
        """A module of a declaration's text, which imports the standard library alone."""
        text = text.encode()
        return self.make("module_parse", text, len(text), name, None, 0)

    def make(self, name, *arguments):
        """The handle that a function gives through its last argument, which is left out here."""
        return self.make_several(1, name, *arguments)[0]

    def make_several(self, count, name, *arguments):
        """The same of a function that gives `count` of them."""
        out = (ctypes.c_void_p * count)()
        self.call(name, *arguments, out)
        kind = KIND_OF.get(name) or name.split("_")[0]
        free = getattr(self.lib, f"rho_{kind}_free")
        return [Handle(kind, free, pointer) for pointer in out]


def argument(value):
    """Python's numbers and texts as C has them."""
    if isinstance(value, int):
        if not -2**63 <= value < 2**64:
            raise OverflowError(f"{value} has more than 64 bits")
        return ctypes.c_uint64(value % 2**64)
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text has a NUL")
        return os.fsencode(value)
    return value
