#!/usr/bin/env python3
"""A linear layer of PyTorch with a quantized weight: linear.py LIBRHO GEMM.rho [N K]

Launches go to PyTorch's stream. For a number of rows that is prepared they compile and allocate nothing of Rho's, so
that CUDA graphs capture them. Prints what of the product with the weight itself the format's rounding is, and the time
of a launch, quantizing its inputs included, beside PyTorch's own product.
"""

import sys

import torch

from rho import BF16, F16, F32, Rho

TYPES = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}
OUTPUTS = {number: dtype for dtype, number in TYPES.items()}


class Linear(torch.nn.Module):
    """y = x * weight^T, of a module's only gemm, with one packed weight for all numbers of rows. For inference, on one
    stream at a time: what x is quantized to is the layer's own."""

    def __init__(self, rho, engine, module, weight, batches):
        super().__init__()
        self.rho, self.batches = rho, sorted(batches)
        self.n, self.k = weight.shape
        numbers = weight.detach().cpu().contiguous()
        sizes = torch.tensor(self.batches, dtype=torch.int64)
        self.gemms = rho.make_several(len(self.batches), "engine_compile_shared", engine, module, "", self.n, self.k,
                                      sizes.data_ptr(), len(self.batches))
        self.packed = rho.make("gemm_pack_weights", self.gemms[0], numbers.data_ptr(), TYPES[weight.dtype], self.k)
        self.device = rho.make("device_cuda", weight.device.index or 0)
        self.memory = [self.memory_of(gemm) for gemm in self.gemms]
        self.prepared = {}  # of a number of rows: its gemm, activations and workspace

    def memory_of(self, gemm):
        """Activations and a workspace for as many rows as a gemm has."""
        return (self.rho.make("gemm_make_activations", gemm, None),
                self.rho.make("device_allocate", self.device, self.rho.get("gemm_workspace_bytes", gemm)))

    def prepare(self, m):
        """The kernel of the least of the batches that has m rows, for m, in the memory of that batch."""
        if m not in self.prepared:
            nearest = next((i for i, batch in enumerate(self.batches) if batch >= m), -1)
            gemm = self.rho.make("gemm_with_rows", self.gemms[nearest], m)
            if m <= self.batches[nearest]:
                codes, workspace = self.memory[nearest]
                self.prepared[m] = gemm, self.rho.make("activations_with_rows", codes, m), workspace
            else:
                self.prepared[m] = gemm, *self.memory_of(gemm)
        return self.prepared[m]

    def forward(self, x):
        rows = x.reshape(-1, self.k).contiguous()
        gemm, codes, workspace = self.prepare(rows.shape[0])
        y = torch.empty((rows.shape[0], self.n), device=x.device,
                        dtype=OUTPUTS[self.rho.get("gemm_output_type", gemm)])
        stream = torch.cuda.current_stream(x.device).cuda_stream
        self.rho.call("gemm_quantize_activations", gemm, codes, rows.data_ptr(), TYPES[x.dtype], self.k, stream)
        self.rho.call("gemm_launch", gemm, self.packed, codes, y.data_ptr(), workspace, stream)
        return y.reshape(*x.shape[:-1], self.n)


def microseconds(function, launches=50):
    """Of one call, in a CUDA graph of many."""
    function()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            function()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / launches


def main(library, declaration, n=4096, k=4096):
    rho = Rho(library)
    engine = rho.make("engine_create", rho.make("device_cuda", 0), None)
    module = rho.make("module_load", declaration)
    plain = torch.nn.Linear(int(k), int(n), bias=False, device="cuda", dtype=torch.bfloat16)
    layer = Linear(rho, engine, module, plain.weight, (1, 16, 256))
    with torch.inference_mode():
        for m in (1, 7, 16, 256):
            x = torch.randn((m, int(k)), device="cuda", dtype=torch.bfloat16)
            exact = plain(x).float()
            error = ((layer(x).float() - exact).norm() / exact.norm()).item()
            print(f"m = {m}: relative error {error:.3f}, {microseconds(lambda: layer(x)):.1f} us, PyTorch bf16 "
                  f"{microseconds(lambda: plain(x)):.1f} us")


if __name__ == "__main__":
    main(*sys.argv[1:])
