"""Rho's C API (runtime/RhoC.h, kernels/WeightFileC.h) for Python, by ctypes.

    rho = Rho("librho.so")
    device = rho.make("device_automatic")
    engine = rho.make("engine_create", device, None)

Functions are named without `rho_`. A handle is freed with the last reference to it.
"""

import ctypes

F32, F16, BF16 = range(3)
TEXTS = ["error_text", "device_name", "device_target", "module_gemm_name", "gemm_weight_layout", "gemm_plan",
         "gemm_warning", "weight_file_name", "weight_format", "weight_declarations"]
NUMBERS = ["buffer_address", "buffer_bytes", "module_gemm_count", "gemm_m", "gemm_n", "gemm_k",
           "gemm_packed_weight_bytes", "gemm_workspace_bytes", "gemm_warning_count", "weight_file_count", "weight_n",
           "weight_k"]
# Functions that make another kind of handle than the one they are named after.
KIND_OF = {"device_allocate": "buffer", "device_view": "buffer", "gemm_pack_weights": "buffer",
           "gemm_pack_codes": "buffer", "weight_file_pack": "buffer", "gemm_make_activations": "activations",
           "gemm_view_activations": "activations", "engine_compile": "gemm", "engine_compile_shared": "gemm",
           "engine_compile_sharing": "gemm", "weight_file_open": "weight_file", "weight_file_describe": "weight",
           "weight_file_input_transform": "input_transform"}


class RhoError(RuntimeError):
    """What a function of Rho says of what it was given."""


class Handle:
    """What a function has made, for as long as anything refers to it."""

    def __init__(self, free, pointer):
        self._free, self._as_parameter_ = free, ctypes.c_void_p(pointer)

    def __del__(self):
        self._free(self._as_parameter_)


class Rho:
    """The library's functions."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.rho_gemm_predicted_microseconds.restype = ctypes.c_double
        self.lib.rho_gemm_compile_milliseconds.restype = ctypes.c_double
        for names, kind in ((TEXTS, ctypes.c_char_p), (NUMBERS, ctypes.c_int64)):
            for name in names:
                getattr(self.lib, "rho_" + name).restype = kind

    def get(self, name, *arguments):
        """The text or number that a function returns."""
        found = getattr(self.lib, "rho_" + name)(*map(argument, arguments))
        return found.decode() if isinstance(found, bytes) else found

    def call(self, name, *arguments):
        """Calls a function that returns nothing but errors, which are raised."""
        function = getattr(self.lib, "rho_" + name)
        function.restype = ctypes.c_void_p
        error = function(*map(argument, arguments))
        if error:
            text = self.get("error_text", ctypes.c_void_p(error))
            self.lib.rho_error_free(ctypes.c_void_p(error))
            raise RhoError(text)

    def make(self, name, *arguments):
        """The handle that a function gives through its last argument, which is left out here."""
        return self.make_several(1, name, *arguments)[0]

    def make_several(self, count, name, *arguments):
        """The same of a function that gives `count` of them."""
        out = (ctypes.c_void_p * count)()
        self.call(name, *arguments, out)
        free = getattr(self.lib, f"rho_{KIND_OF.get(name) or name.split('_')[0]}_free")
        return [Handle(free, pointer) for pointer in out]


def argument(value):
    """Python's numbers and texts as C has them."""
    if isinstance(value, int):
        return ctypes.c_int64(value)
    return value.encode() if isinstance(value, str) else value
