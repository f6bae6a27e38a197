"""examples/rho.py beside an installed library: python_test.py LIBRHO GEMM.rho

A gemm of 4-bit weights and f16 activations on the emulator, against a product of Python's own numbers.
"""

import ctypes
import random
import sys

from rho import F32, Rho, RhoError

M, N, K = 3, 64, 256


def floats(numbers):
    return (ctypes.c_float * len(numbers))(*numbers)


def main(library, declaration):
    rho = Rho(library)
    device = rho.make("device_emulated", "sm_80")
    engine = rho.make("engine_create", device, None)
    module = rho.make("module_load", declaration)
    assert rho.get("module_gemm_count", rho.parse("// \u00e4")) == 0
    assert rho.get("module_gemm_name", module, 0) == "int4_g128_f16"
    gemm = rho.make("engine_compile", engine, module, "", M, N, K)
    assert rho.get("gemm_n", gemm) == N and "tile" in rho.get("gemm_plan", gemm)

    try:
        rho.get("gemm_n", device)
    except TypeError as error:
        assert "rho_gemm_n of a handle of rho_device" in str(error), error
    else:
        raise AssertionError("a device was taken for a gemm")
    for wrong in [("engine_compile", engine, device, "", M, N, K), ("engine_compile", engine, 7, "", M, N, K),
                  ("gemm_launch", gemm, gemm, None, 0, None, None)]:
        try:
            rho.call(*wrong)
        except TypeError as error:
            assert "rho_" + wrong[0] in str(error), error
        else:
            raise AssertionError(f"{wrong} was taken")

    # Integers of 4 bits, whose scale is then 1 or near it, and small ones, which f16 holds.
    random.seed(1)
    w = [random.randint(-7, 7) for _ in range(N * K)]
    x = [random.randint(-8, 8) for _ in range(M * K)]
    weight = rho.make("gemm_pack_weights", gemm, floats(w), F32, K)
    codes = rho.make("gemm_make_activations", gemm, None)
    inputs, outputs, workspace = (rho.make("device_allocate", device, size)
                                  for size in (4 * M * K, 4 * M * N, rho.get("gemm_workspace_bytes", gemm)))
    rho.call("buffer_write", inputs, floats(x), 4 * M * K, 0)
    rho.call("gemm_quantize_activations", gemm, codes, rho.get("buffer_address", inputs), F32, K, None)
    rho.call("gemm_launch", gemm, weight, codes, rho.get("buffer_address", outputs), workspace, None)
    halves = (ctypes.c_uint16 * (M * N))()
    rho.call("buffer_read", outputs, halves, 2 * M * N, 0)
    for i in range(M):
        for j in range(N):
            exact = sum(a * b for a, b in zip(x[i * K:(i + 1) * K], w[j * K:(j + 1) * K]))
            assert abs(half(halves[i * N + j]) - exact) <= 0.001 * abs(exact) + 0.5, (i, j)

    try:
        rho.make("engine_compile", engine, module, "", 0, N, K)
    except RhoError as error:
        assert error.ids == ["bad_problem"] and "[bad_problem]" in str(error), error
    else:
        raise AssertionError("m = 0 was taken")


def half(bits):
    """The number that these bits of f16 are."""
    exponent, fraction = bits >> 10 & 31, bits & 1023
    number = fraction * 2.0**-24 if exponent == 0 else (1024 + fraction) * 2.0**(exponent - 25)
    return -number if bits >> 15 else number


if __name__ == "__main__":
    main(*sys.argv[1:])
