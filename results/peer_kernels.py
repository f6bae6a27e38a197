"""Kernels for 4-bit weights of other projects, each ready to be timed by peers.py, which says where they come
from. A peer has `ready_ms`, what all kernels of a layer took to compile (None: they were compiled before), and
`time(m)`: its times (see time_launches), the relative error of its outputs (None: not known), and what it chose
where it has no chooser of its own ("" elsewhere): the fastest of all that it has.
"""

import ctypes
import os
import tempfile
import time

try:
    import torch
except ImportError:  # without it there is nothing to time
    torch = None

G128 = {"dtype": "int4", "group_size": 128}
FP4 = {"dtype": "float4e2m1"}
MX = {"group_size": 32, "scale_dtype": "float8e8m0"}

# Rho's gemm -> what Humming calls the same: weight, activation, outputs' type.
FOUR_BITS = {
    "int4_g128_bf16": (G128, None, "bfloat16"),
    "int4_g128_f16": (G128, None, "float16"),
    "nvfp4_bf16": (FP4 | {"group_size": 16, "scale_dtype": "float8e4m3", "scale_2_type": "tensor"}, None,
                   "bfloat16"),
    "mxfp4_bf16": (FP4 | MX, None, "bfloat16"),
    "int4_channel_int8": ({"dtype": "int4"}, "int8", "bfloat16"),
    "int4_g128_int8": (G128, "int8", "bfloat16"),
    "int4_channel_fp8": ({"dtype": "int4"}, "float8e4m3", "bfloat16"),
    "int4_g128_fp8": (G128, "float8e4m3", "bfloat16"),
}
OTHER_WIDTHS = {f"int{bits}_g128_{name}": (G128 | {"dtype": f"int{bits}"}, activation, "bfloat16")
                for name, activation in (("bf16", None), ("int8", "int8")) for bits in (3, 5, 6, 7)}
OTHER_WIDTHS |= {f"mxfp6_{element}_bf16": (MX | {"dtype": f"float6{element}"}, None, "bfloat16")
                 for element in ("e2m3", "e3m2")}
HUMMING = FOUR_BITS | OTHER_WIDTHS


def time_launches(launch, copies, replays=33):
    """Microseconds of launch(copy), over all copies in turns: the median, the least, the most, and launches."""
    launches = -(-20 // copies) * copies
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            launch(i % copies)
    samples = []
    for replay in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            begin.record()
            graph.replay()
            end.record()
        end.synchronize()
        if replay >= 3:
            samples.append(begin.elapsed_time(end) * 1e3 / launches)
        if replay >= 13 and sum(samples) * launches > 4e5:
            break
    samples.sort()
    return samples[len(samples) // 2], samples[0], samples[-1], launches


def time_fastest(launches, copies):
    """time_launches of the fastest of several, by name, and its name."""
    tried = {name: time_launches(launch, copies, replays=6)[0] for name, launch in launches.items()}
    best = min(tried, key=tried.get)
    return time_launches(launches[best], copies), best


def copies_of(tensors):
    """The tensors, and as many copies of them as four times the L2 cache needs."""
    size = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    count = max(2, min(4096, 4 * l2_bytes // size + 2))
    return [[tensor if tensor is None else tensor.clone() for tensor in tensors] for _ in range(count)]


def relative_error(output, product):
    return f"{((output.float() - product).norm() / product.norm()).item():.2e}"


class Humming:
    """A layer of Humming."""

    def __init__(self, gemm, n, k):
        os.environ["HUMMING_CACHE_DIR"] = tempfile.mkdtemp()
        from humming.layer import HummingLayer
        weight, activation, output = HUMMING[gemm]
        self.type = getattr(torch, output)
        quantized = {"dtype": activation} if activation else None
        self.layer = HummingLayer(shape_n=n, shape_k=k, weight_config=dict(weight), input_config=quantized,
                                  torch_dtype=self.type).cuda()
        self.layer.load_from_unquantized(torch.randn((n, k), dtype=self.type, device="cuda"))
        self.values = self.layer.weight_schema.dequant_tensors(dict(self.layer.state_dict())).float()
        self.layer.transform()
        self.k = k
        begin = time.perf_counter()
        self.layer(torch.randn((16, k), dtype=self.type, device="cuda"))
        torch.cuda.synchronize()
        self.ready_ms = (time.perf_counter() - begin) * 1e3
        names = ["weight", "weight_scale", "zero_point", "weight_scale_2"]
        self.copies = copies_of([getattr(self.layer, name, None) for name in names])

    def time(self, m):
        from humming.forward import humming_forward, may_process_input
        config = self.layer.humming_config
        x = torch.randn((m, self.k), dtype=self.type, device="cuda")
        output = torch.empty((m, self.values.shape[0]), dtype=self.type, device="cuda")
        inputs, group_scales, token_scales = may_process_input(config, x)
        scales = token_scales if group_scales is None else group_scales

        def launch(copy):
            weight, weight_scale, zero_point, weight_scale_2 = self.copies[copy]
            humming_forward(config, inputs=inputs, weight=weight, weight_scale=weight_scale,
                            zero_point=zero_point, weight_scale_2=weight_scale_2, input_scale=scales,
                            outputs=output, locks=self.layer.locks)
        times = time_launches(launch, len(self.copies))
        return times, relative_error(output, x.float() @ self.values.T), ""


class Int4Pack:
    """PyTorch's kernel for weights of 4 bits with scales and zeros of groups."""
    ready_ms = None

    def __init__(self, n, k):
        codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.rand((k // 128, n, 2), device="cuda").to(torch.bfloat16)
        high, low = codes >> 4, codes & 15
        values = torch.stack([high, low], -1).view(n, k // 128, 128).float() - 8
        scale, zero = scales.float().permute(1, 0, 2).unbind(-1)
        self.values = (values * scale[..., None] + zero[..., None]).view(n, k)
        self.copies = copies_of([torch.ops.aten._convert_weight_to_int4pack(codes, 8), scales])
        self.k = k

    def time(self, m):
        x = torch.randn((m, self.k), dtype=torch.bfloat16, device="cuda")
        output = None

        def launch(copy):
            nonlocal output
            output = torch.ops.aten._weight_int4pack_mm(x, self.copies[copy][0], 128, self.copies[copy][1])
        times = time_launches(launch, len(self.copies))
        return times, relative_error(output, x.float() @ self.values.T), ""


# What libraries of peer_libraries/ are called with.

def library(folder, name, **results):
    found = ctypes.CDLL(os.path.join(folder, f"{name}.so"))
    for function, kind in results.items():
        getattr(found, function).restype = kind
    return found


def address(tensor):
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def check(failed, message=None):
    if failed:
        raise RuntimeError(message().decode() if message else f"a launch failed: {failed}")


def workspace_of(size):
    return torch.zeros(max(size, 16), dtype=torch.uint8, device="cuda")


def random_codes(n, k):
    """int4 codes, and scales of groups."""
    codes = torch.randint(-8, 8, (n, k), dtype=torch.int32, device="cuda")
    return codes, torch.rand((k // 128, n), device="cuda") + 0.5


def scaled(codes, scales):
    return codes.float() * scales.float().T.repeat_interleave(128, 1)


def eight_in_a_word(codes):
    """[n][k] of 0 to 15 -> [n][k/8] int32, the first in the lowest bits."""
    words = sum(codes[:, i::8].to(torch.int64) << 4 * i for i in range(8))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


class Cutlass:
    """Mixed input, int4 with scales of groups x bf16 or e4m3: the fastest configuration at each m."""
    ready_ms = None

    def __init__(self, folder, kind, n, k):
        self.n, self.k, self.kind = n, k, kind
        self.lib = library(folder, f"cutlass_{kind}", **{f"cutlass_{kind}_name": ctypes.c_char_p})
        codes, scales = random_codes(n, k)
        packed = ((codes[:, 0::2] & 15) | (codes[:, 1::2] & 15) << 4).to(torch.uint8)
        weight = torch.empty_like(packed)
        self.type = torch.bfloat16 if kind == "bf16" else torch.float8_e4m3fn
        # Its table of e4m3 has the products of codes and scales: exact for powers of two.
        scales = (scales if kind == "bf16" else scales.round()).to(self.type)
        self.values = scaled(codes, scales)
        check(self.call("prepare")(address(weight), address(packed), n, k, stream()))
        if kind == "fp8":
            table = torch.empty((k // 128, n, 8), dtype=torch.uint8, device="cuda")
            check(self.call("prepare_scales")(address(table), address(scales), ctypes.c_size_t(scales.numel()),
                                              stream()))
            scales = table
        torch.cuda.synchronize()
        self.copies = copies_of([weight, scales])

    def call(self, name):
        return getattr(self.lib, f"cutlass_{self.kind}_{name}")

    def time(self, m):
        x = torch.randn((m, self.k), device="cuda").to(self.type)
        output = torch.empty((m, self.n), dtype=torch.bfloat16, device="cuda")
        launches = {}
        for i in range(self.call("configs")()):
            size = ctypes.c_size_t()
            if not self.call("supported")(i, m, self.n, self.k, ctypes.byref(size)):
                continue
            workspace = workspace_of(size.value)

            def launch(copy, i=i, workspace=workspace):
                weight, scales = self.copies[copy]
                check(self.call("launch")(i, address(output), address(x), address(weight), address(scales), m,
                                          self.n, self.k, address(workspace), ctypes.c_size_t(workspace.numel()),
                                          stream()))
            launches[self.call("name")(i).decode()] = launch
        times, best = time_fastest(launches, len(self.copies))
        return times, relative_error(output, x.float() @ self.values.T), best


class TileLang:
    """Its example of mxfp4 weights x bf16 on Hopper: the fastest configuration at each m."""
    ready_ms = None

    def __init__(self, folder, n, k):
        self.n, self.k = n, k
        self.lib = library(folder, "tilelang", tilelang_name=ctypes.c_char_p, tilelang_error=ctypes.c_char_p)
        codes = torch.randint(0, 16, (n, k), dtype=torch.int32, device="cuda")
        # It multiplies by 1 << code, in 8 bits as it is written: no code is an exponent below 0, or above 7.
        scales = torch.randint(0, 8, (n, k // 32), dtype=torch.uint8, device="cuda")
        magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda")
        values = torch.cat([magnitudes, -magnitudes])[codes]
        self.values = values * torch.exp2(scales.float()).repeat_interleave(32, 1)
        self.copies = copies_of([self.twiddled(codes), scales])

    @staticmethod
    def twiddled(codes):
        """[n][k] e2m1 -> [n][k/2] uint8: of four codes the bits where the decode shifts and masks them."""
        first, second, third, fourth = (codes[:, i::4] for i in range(4))
        halves = ((first & 8) << 12 | (first & 7) << 6 | (second & 8) << 9 | (second & 7) << 3
                  | (third & 8) << 6 | third & 7
                  | (fourth & 8) << 11 | (fourth & 6) << 9 | (fourth & 1) << 13)
        return torch.stack([halves >> 8, halves & 255], -1).to(torch.uint8).flatten(1)

    def launches(self, m, x, output):
        """For each configuration for m rows what launches it with a copy of the weights."""
        launches = {}
        for i in range(self.lib.tilelang_configs()):
            if not self.lib.tilelang_supported(i, m, self.n, self.k):
                continue

            def launch(copy, i=i):
                weight, scales = self.copies[copy]
                check(self.lib.tilelang_launch(i, address(output), address(x), address(weight), address(scales),
                                               m, stream()), self.lib.tilelang_error)
            launches[self.lib.tilelang_name(i).decode()] = launch
        return launches

    def time(self, m):
        x = torch.randn((m, self.k), dtype=torch.bfloat16, device="cuda")
        output = torch.empty((m, self.n), dtype=torch.bfloat16, device="cuda")
        times, best = time_fastest(self.launches(m, x, output), len(self.copies))
        return times, relative_error(output, x.float() @ self.values.T), best


class Machete:
    """vLLM's, int4 with scales of groups x f16 or bf16, by its own choice of schedule."""
    ready_ms = None

    def __init__(self, folder, kind, n, k):
        self.n, self.k = n, k
        self.lib = library(folder, f"machete_{kind}", machete_error=ctypes.c_char_p,
                           machete_workspace=ctypes.c_longlong)
        self.type = {"bf16": torch.bfloat16, "f16": torch.float16}[kind]
        codes, scales = random_codes(n, k)
        scales = scales.to(self.type)
        self.values = scaled(codes, scales)
        words = eight_in_a_word(codes + 8)
        weight = torch.empty_like(words)
        check(self.lib.machete_prepare(address(weight), address(words), n, k, stream()), self.lib.machete_error)
        torch.cuda.synchronize()
        self.copies = copies_of([weight, scales])

    def time(self, m):
        x = torch.randn((m, self.k), device="cuda").to(self.type)
        output = torch.empty((m, self.n), dtype=self.type, device="cuda")
        workspace = workspace_of(self.lib.machete_workspace(m, self.n, self.k, None))

        def launch(copy):
            weight, scales = self.copies[copy]
            check(self.lib.machete_launch(address(output), address(x), address(weight), address(scales), m, self.n,
                                          self.k, None, address(workspace), ctypes.c_size_t(workspace.numel()),
                                          stream()), self.lib.machete_error)
        times = time_launches(launch, len(self.copies))
        return times, relative_error(output, x.float() @ self.values.T), ""


class Marlin:
    """vLLM's, int4 with scales of groups x f16, bf16 or int8, by its own choice of threads and tiles."""
    ready_ms = None

    def __init__(self, folder, kind, n, k):
        self.n, self.k = n, k
        self.lib = library(folder, "marlin", marlin_error=ctypes.c_char_p, marlin_workspace=ctypes.c_size_t)
        self.number = {"f16": 0, "bf16": 1, "int8": 3}[kind]
        self.type = torch.float16 if kind == "f16" else torch.bfloat16
        codes, scales = random_codes(n, k)
        if kind == "int8":  # scales of groups are integers, times a factor of the whole
            self.factor = (scales.max() / 4096).item()
            stored = (scales / self.factor).round()
            scales, order = stored * self.factor, [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
            stored = stored.to(torch.int16)
        else:
            self.factor, scales = None, scales.to(self.type)
            stored, order = scales, [i + 8 * j for i in range(8) for j in range(8)]
        stored = stored.reshape(-1, len(order))[:, order].reshape(-1, n).contiguous()
        self.values = scaled(codes, scales)
        words = eight_in_a_word(codes + 8).T.contiguous()
        weight = torch.empty_like(words)
        check(self.lib.marlin_prepare(self.number, address(weight), address(words), n, k, stream()),
              self.lib.marlin_error)
        torch.cuda.synchronize()
        self.copies = copies_of([weight, stored])

    def time(self, m):
        x = torch.randn((m, self.k), device="cuda").to(self.type)
        token_scales = None
        product = x.float()
        if self.factor is not None:
            scales = x.float().abs().amax(1) / 127
            x = (x.float() / scales[:, None]).round().to(torch.int8)
            product, token_scales = x.float() * scales[:, None], scales * self.factor
        output = torch.empty((m, self.n), dtype=self.type, device="cuda")
        workspace = workspace_of(self.lib.marlin_workspace(m))

        def launch(copy):
            weight, scales = self.copies[copy]
            check(self.lib.marlin_launch(self.number, address(output), address(x), address(weight), address(scales),
                                         address(token_scales), m, self.n, self.k, address(workspace),
                                         ctypes.c_size_t(workspace.numel()), stream()), self.lib.marlin_error)
        times = time_launches(launch, len(self.copies))
        return times, relative_error(output, product @ self.values.T), ""


class QServe:
    """u4 x int8: with scales and zero points of channels, or of groups in 8 bits under scales of channels."""
    ready_ms = None

    def __init__(self, folder, kind, n, k):
        self.n, self.k = n, k
        self.run = getattr(library(folder, "qserve"), f"qserve_{kind}_launch")
        self.grouped = kind == "group"
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8, device="cuda")
        weight_scales = (torch.rand(n, device="cuda") + 0.5).half()
        tiles = codes.view(n // 32, 2, 2, 8, k // 32, 2, 4, 4).permute(0, 4, 3, 6, 5, 2, 7, 1)
        weight = (tiles[..., 0] | tiles[..., 1] << 4).reshape(n, k // 2).contiguous()
        if self.grouped:
            scales = torch.randint(1, 16, (n, k // 128), device="cuda")
            zeros = torch.randint(7, 9, (n, k // 128), device="cuda")
            values = codes.float() * scales.repeat_interleave(128, 1) - (zeros * scales).repeat_interleave(128, 1)
            self.values = values * weight_scales.float()[:, None]
            order = [self.in_order(each.to(torch.int8)) for each in (-zeros * scales, scales)]
            self.copies = copies_of([weight, *order, weight_scales])
        else:
            zero = torch.full((n,), 8.0, device="cuda")
            self.values = (codes.float() - 8) * weight_scales.float()[:, None]
            self.copies = copies_of([weight, weight_scales, (weight_scales.float() * zero).half()])

    def in_order(self, each):
        """[n][k/128] -> [k/128][n], of each 32 of n the order 0, 8, 16, 24, 1, ..."""
        groups = each.shape[1]
        return each.T.reshape(groups, self.n // 32, 4, 8).transpose(-2, -1).reshape(groups, self.n).contiguous()

    def time(self, m):
        x = torch.randn((m, self.k), device="cuda")
        scales = (x.abs().amax(1) / 127).half()
        codes = (x / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
        product = codes.float() * scales.float()[:, None]
        sums = product.sum(1).half()
        output = torch.empty((m, self.n), dtype=torch.float16, device="cuda")

        def launch(copy):
            if self.grouped:
                weight, zeros, group_scales, weight_scales = self.copies[copy]
                operands = [weight, zeros, group_scales, weight_scales, scales]
            else:
                weight, weight_scales, scaled_zeros = self.copies[copy]
                operands = [weight, weight_scales, scales, scaled_zeros, sums]
            check(self.run(address(output), address(codes), *map(address, operands), m, self.n, self.k, stream()))
        times = time_launches(launch, len(self.copies))
        return times, relative_error(output, product @ self.values.T), ""
