"""Rho's C API (runtime/RhoC.h, kernels/WeightFileC.h) for Python, by ctypes.

    rho = Rho("librho.so")
    device = rho.make("device_automatic")
    engine = rho.make("engine_create", device, None)

Functions are named without `rho_`. A handle is freed with the last reference to it.
"""

import ctypes
import os

F32, F16, BF16 = range(3)
TEXTS = ["version", "error_text", "error_id", "error_message", "device_name", "device_target", "module_gemm_name", "gemm_weight_layout",
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
KINDS = ["error", "module", "device", "buffer", "engine", "gemm", "activations", "input_transform", "weight_file", "weight"]
# Handles among the arguments behind the first, which is of the kind that the function is named after.
HANDLES = {"engine_compile": {1: "module"}, "engine_compile_shared": {1: "module"}, "engine_compile_sharing": {1: "gemm"},
           "gemm_make_activations": {1: "input_transform"}, "gemm_choose_parts": {1: "activations"},
           "gemm_fix_component": {1: "activations"}, "gemm_quantize_activations": {1: "activations"},
           "gemm_launch": {1: "buffer", 2: "activations", 4: "buffer"}, "weight_file_pack": {3: "gemm"},
           "weight_file_input_transform": {2: "engine"}}


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
        """A function whose handles are of the kinds that it takes."""
        named = [kind for kind in KINDS if name.startswith(kind + "_")]
        kinds = {0: "device" if name == "engine_create" else max(named, key=len, default=None), **HANDLES.get(name, {})}
        for i, value in enumerate(arguments):
            if isinstance(value, Handle) and value.kind != kinds.get(i):
                raise TypeError(f"rho_{name} of a handle of rho_{value.kind}")
            if i > 0 and i in kinds and value is not None and not isinstance(value, Handle):
                raise TypeError(f"rho_{name} takes a handle of rho_{kinds[i]}, found {value!r}")
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
