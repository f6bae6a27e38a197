"""tilelang_generate.py CHECKOUT OUT: TileLang's own example of mxfp4 weights with bf16 activations on Hopper,
made into CUDA by the TileLang that is installed: of each shape OUT/NxK.cu has the kernels of all configurations
below and their table."""
import sys
from pathlib import Path

checkout, out = map(Path, sys.argv[1:3])
sys.path.insert(0, str(checkout / "examples/dequantize_gemm"))
import tilelang
import tilelang.language as T
from tilelang import tvm
from tilelang.backend.target import determine_target
from tilelang.jit.adapter.wrapper import TLCUDASourceWrapper
from example_dequant_gemm_bf16_mxfp4_hopper import matmul

SHAPES = (8192, 8192), (28672, 4096), (4096, 4096)
# Rows of x, rows of the weight and k in a block, stages (0: no pipeline), threads that multiply, and whether
# TileLang may have other warps load, which takes all registers (else there is room for more blocks).
# The example's own list begins at 64 rows of x, and has 0 and 2 stages; its `split` has no effect.
CONFIGS = [
    (16, 16, 256, 3, 64, False),
    (16, 32, 128, 4, 64, False),
    (16, 32, 128, 4, 128, False),
    (16, 32, 256, 3, 128, False),
    (16, 32, 256, 4, 128, True),
    (16, 64, 128, 2, 128, True),
    (16, 64, 128, 4, 128, False),
    (16, 64, 256, 2, 256, False),
    (16, 64, 256, 3, 256, True),
    (16, 128, 128, 3, 256, False),
    (16, 128, 128, 4, 256, True),
    (32, 64, 128, 3, 128, False),
    (64, 32, 128, 3, 128, False),
    (64, 64, 128, 0, 128, True),
    (64, 64, 128, 3, 128, False),
    (64, 64, 128, 3, 256, True),
    (64, 64, 256, 2, 256, True),
    (64, 128, 128, 0, 128, True),
    (64, 128, 128, 2, 128, False),
    (64, 128, 128, 3, 256, True),
    (64, 256, 64, 3, 256, True),
    (128, 64, 128, 2, 256, False),
    (128, 64, 128, 3, 256, True),
    (128, 128, 64, 3, 256, False),
    (128, 128, 64, 4, 256, True),
    (128, 128, 128, 0, 256, True),
    (128, 128, 128, 2, 256, True),
    (128, 128, 128, 3, 256, True),
    (128, 256, 64, 3, 256, True),
    (128, 256, 128, 2, 256, True),
    (256, 64, 128, 2, 256, True),
    (256, 128, 64, 4, 256, True),
    (256, 128, 128, 2, 256, True),  # the example's default
    (256, 128, 128, 2, 512, True),
]
KERNEL = 'extern "C" __global__'


def generate(n, k, block_m, block_n, block_k, stages, threads, loaders):
    """The kernel and its launch, in TileLang's own words."""
    program = matmul.jit_impl.get_tir(
        T.dynamic("m"), n, k, T.bfloat16, T.bfloat16, T.float32, num_bits=4, scale_size=32, block_M=block_m,
        block_N=block_n, block_K=block_k, num_stages=stages, threads=threads, split=1)
    target = determine_target({"kind": "cuda", "arch": "sm_90a"}, return_object=True)
    with target, tvm.transform.PassContext(config={"tl.disable_warp_specialized": not loaders}):
        made = tilelang.lower(program, target=target)
    module = tvm.IRModule({program.attrs["global_symbol"]: program})
    return TLCUDASourceWrapper(module, made.kernel_source, target, made.device_mod, made.host_mod).lib_code


def parts(source):
    """What the kernel calls, all that is included, and the rest, which may be in a namespace."""
    before, kernel = source.split(KERNEL, 1)
    decode, includes = before.split("#if defined(_MSC_VER)", 1)
    includes = includes.replace("#include <tl_templates/cuda/debug.h>\n", "")  # has functions not inline
    lines = (KERNEL + kernel).splitlines()
    includes = ["#if defined(_MSC_VER)" + includes, *(line for line in lines if line.startswith("#include"))]
    body = "\n".join(line for line in lines if not line.startswith("#include")).replace('extern "C" ', "")
    # As TileLang's other launches, which have this attribute only for kernels that wait for the one before.
    assert body.count("config.numAttrs = 1;") == 1
    return decode, "\n".join(includes), body.replace("config.numAttrs = 1;", "config.numAttrs = 0;")


out.mkdir(parents=True, exist_ok=True)
for n, k in SHAPES:
    sources = [parts(generate(n, k, *config)) for config in CONFIGS]
    with open(out / f"{n}x{k}.cu", "w") as file:
        print('#include "tilelang.h"', *dict.fromkeys(part for _, part, _ in sources), sep="\n", file=file)
        print(*dict.fromkeys(part for part, _, _ in sources), sep="\n", file=file)
        for i, (_, _, body) in enumerate(sources):
            print(f"namespace config_{n}x{k}_{i} {{\n{body}\n}}\n", file=file)
        for i, (block_m, block_n, block_k, stages, threads, loaders) in enumerate(CONFIGS):
            name = f"{block_m}x{block_n}x{block_k}_{stages}_{threads}{'' if loaders else '_plain'}"
            print(f'CONFIG("{name}", {n}, {k}, {block_m}, config_{n}x{k}_{i})', file=file)
