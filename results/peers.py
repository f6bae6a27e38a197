#!/usr/bin/env python3
r"""Times kernels for 4-bit weights of other projects beside Rho's, in one run on one GPU.

Usage: peers.py measure RHO TABLE.csv [--marlin LIBRARY] [--n-k NxK,...] [--m M,...]
       peers.py measure RHO TABLE.csv --widths [--n-k NxK,...] [--m M,...]
       peers.py show TABLE.csv [--plot FILE.svg]

RHO is the tool. The others are Humming (`pip install humming-kernels==0.1.20`), PyTorch's
`_weight_int4pack_mm`, and Marlin, where LIBRARY is its one file of CUDA as a shared library:

    sed -e '/createpolicy/d' -e 's/\.L2::cache_hint//' -e 's/, %2, p;/, %2;/' marlin_cuda_kernel.cu > marlin.cu
    nvcc -O3 --expt-relaxed-constexpr -shared -Xcompiler -fPIC -arch=sm_90 -o LIBRARY marlin.cu

(without that change, a hint to the L2 cache, it stops at an illegal instruction on an H200). Every kernel is
timed as `rho bench --suite llama` times its own: random numbers, weights rotated past four times the L2
cache, the median of replays of a CUDA graph of at least 20 launches, the kernel alone. Activations of 8
bits are quantized before. Each peer chooses its schedule by itself, as Rho's planner does (`--untuned`).
`ready_ms` is how long all kernels of a layer take to compile, on all cores and without caches: of Humming
the first call of a layer, which makes a kernel for each range of m, of Rho `rho cache warm` for the values
of m here, the start of the process among it. Outputs of Humming and of PyTorch are compared with the
product of their own dequantized weights (`error`: the norm of the difference, in norms of the product).

`show` prints the time of each peer in times of Rho's gemm that is launched serially: geometric means of the
shapes, and the least and most of all.
"""

import argparse
import csv
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:  # only `measure` needs it
    torch = None

MARLIN_SYMBOL = "_Z11marlin_cudaPKvS0_PvS1_iiiS1_iiP11CUstream_stiiii"
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
HERE = pathlib.Path(__file__).parent
FIELDS = ["gemm", "kernel", "device", "n", "k", "m", "launch", "us", "us_min", "us_max", "launches", "error",
          "ready_ms"]


def time_launches(launch, copies):
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
    for replay in range(33):
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
        return times, relative_error(output, x.float() @ self.values.T)


class Int4Pack:
    """PyTorch's kernel for weights of 4 bits with scales and zeros of groups."""

    def __init__(self, n, k):
        codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.rand((k // 128, n, 2), device="cuda").to(torch.bfloat16)
        high, low = codes >> 4, codes & 15
        values = torch.stack([high, low], -1).view(n, k // 128, 128).float() - 8
        scale, zero = scales.float().permute(1, 0, 2).unbind(-1)
        self.values = (values * scale[..., None] + zero[..., None]).view(n, k)
        self.copies = copies_of([torch.ops.aten._convert_weight_to_int4pack(codes, 8), scales])
        self.k = k
        self.ready_ms = None

    def time(self, m):
        x = torch.randn((m, self.k), dtype=torch.bfloat16, device="cuda")
        output = None

        def launch(copy):
            nonlocal output
            output = torch.ops.aten._weight_int4pack_mm(x, self.copies[copy][0], 128, self.copies[copy][1])
        times = time_launches(launch, len(self.copies))
        return times, relative_error(output, x.float() @ self.values.T)


class Marlin:
    """Marlin's kernel of f16 and groups of 128; random bits are its weights, so that no error is known."""

    def __init__(self, library, n, k):
        self.run = getattr(ctypes.CDLL(library), MARLIN_SYMBOL)
        self.n, self.k = n, k
        bits = torch.randint(-2**31, 2**31 - 1, (k // 16, 2 * n), dtype=torch.int32, device="cuda")
        scales = torch.rand((k // 128, n), device="cuda").half()
        self.copies = copies_of([bits, scales])
        self.ready_ms = None

    def time(self, m):
        x = torch.randn((m, self.k), dtype=torch.half, device="cuda")
        output = torch.empty((m, self.n), dtype=torch.half, device="cuda")
        locks = torch.zeros(self.n // 128 * 16, dtype=torch.int32, device="cuda")

        def launch(copy):
            bits, scales = self.copies[copy]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, bits, output, scales, locks)]
            failed = self.run(*pointers[:4], m, self.n, self.k, pointers[4], 128, 0, stream, -1, -1, -1, 16)
            if failed:
                raise RuntimeError(f"Marlin refuses m = {m}: {failed}")
        return time_launches(launch, len(self.copies)), None


def file_of(gemm):
    return HERE.parent / f"kernels/gemms/{gemm}.rho" if gemm in FOUR_BITS else HERE / "peers.rho"


def rho_ready(rho, gemm, n, k, sizes):
    """Milliseconds until the gemm's kernels for all m are compiled."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        subprocess.run([rho, "cache", "warm", file_of(gemm), "--gemm", gemm, "--n-k", f"{n}x{k}", "--m", sizes,
                        "--untuned", "--cache-dir", folder], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"CUDA_CACHE_DISABLE": "1"})
        return f"{(time.perf_counter() - begin) * 1e3:.0f}"


def rho_rows(rho, gemms, n, k, sizes):
    """What `rho bench` says of its kernels and of cuBLASLt's at these sizes."""
    ready = {gemm: rho_ready(rho, gemm, n, k, sizes) for gemm in gemms}
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "rho.csv"
        subprocess.run([rho, "bench", "--suite", "llama", *dict.fromkeys(map(file_of, gemms)),
                        "--n-k", f"{n}x{k}", "--m", sizes, "--launch", "both", "--untuned", "--csv", table],
                       check=True, stdout=subprocess.DEVNULL)
        with open(table, newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["m"]]
    for row in rows:
        library = row["kernel"].startswith("cublaslt")
        yield {"gemm": "" if library else row["kernel"], "kernel": row["kernel"] if library else "rho",
               "ready_ms": ready.get(row["kernel"], ""), **{name: row[name] for name in FIELDS[2:11]}}


def peers(gemms, n, k, marlin):
    """(gemm of Rho, kernel, what makes the peer): one after the other, since each fills much memory."""
    for gemm in gemms:
        yield gemm, "humming", lambda gemm=gemm: Humming(gemm, n, k)
    if gemms is not FOUR_BITS:
        return
    yield "int4_g128_bf16", "torch_int4pack", lambda: Int4Pack(n, k)
    if marlin:
        yield "int4_g128_f16", "marlin", lambda: Marlin(marlin, n, k)


def measure(arguments):
    torch.manual_seed(1)
    gemms = OTHER_WIDTHS if arguments.widths else FOUR_BITS
    with open(arguments.csv, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n", restval="")
        writer.writeheader()

        def add(row):
            writer.writerow(row)
            file.flush()

        for n, k in ([int(size) for size in shape.split("x")] for shape in arguments.n_k.split(",")):
            print(f"{n} x {k}: rho", file=sys.stderr, flush=True)
            for row in rho_rows(arguments.rho, gemms, n, k, arguments.m):
                add(row)
            for gemm, kernel, make in peers(gemms, n, k, arguments.marlin):
                print(f"{n} x {k}: {kernel}, {gemm}", file=sys.stderr, flush=True)
                peer = make()
                ready = "" if peer.ready_ms is None else f"{peer.ready_ms:.0f}"
                for m in map(int, arguments.m.split(",")):
                    (us, least, most, launches), error = peer.time(m)
                    add({"gemm": gemm, "kernel": kernel, "device": torch.cuda.get_device_name(), "n": n, "k": k,
                         "m": m, "us": f"{us:.3f}", "us_min": f"{least:.3f}", "us_max": f"{most:.3f}",
                         "launches": launches, "error": error or "", "ready_ms": ready})
                del peer
                torch.cuda.empty_cache()


def show(arguments):
    with open(arguments.csv, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gemm"]]
    own, others = {}, {}
    for row in rows:
        place = (f"{row['n']} x {row['k']}", int(row["m"]))
        if row["kernel"] != "rho":
            others.setdefault((row["kernel"], row["gemm"]), {})[place] = float(row["us"])
        elif row["launch"] == "serial":
            own[row["gemm"], place] = float(row["us"])
    ratios = {peer: {place: us / own[peer[1], place] for place, us in times.items()}
              for peer, times in others.items()}
    sizes = sorted({place[1] for places in ratios.values() for place in places})
    print(f"| peer | gemm | {' | '.join(f'm = {m}' for m in sizes)} | least, most |")
    print("|---" * (len(sizes) + 3) + "|")
    for (kernel, gemm), places in ratios.items():
        means = [statistics.geometric_mean(ratio for place, ratio in places.items() if place[1] == m)
                 for m in sizes]
        print(f"| {kernel} | {gemm} | {' | '.join(f'{mean:.2f}' for mean in means)} | "
              f"{min(places.values()):.2f}, {max(places.values()):.2f} |")
    if arguments.plot:
        plot(arguments.plot, ratios)


def plot(path, ratios):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "peers"
    from matplotlib import pyplot
    shapes = list(dict.fromkeys(place[0] for places in ratios.values() for place in places))
    figure, axes = pyplot.subplots(1, len(shapes), figsize=(4 * len(shapes) + 2, 4), sharey=True, squeeze=False)
    for axis, shape in zip(axes[0], shapes):
        for (kernel, gemm), places in ratios.items():
            line = {place[1]: ratio for place, ratio in places.items() if place[0] == shape}
            axis.plot(line.keys(), line.values(), marker=".", label=f"{kernel}, {gemm}",
                      linestyle="-" if kernel == "humming" else "--")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set(title=f"n x k = {shape}", xlabel="m", ylim=(0.8, 3.5))
    axes[0][0].set_ylabel("time of the peer / time of Rho (up to 3.5)")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.set_defaults(run=measure)
    measuring.add_argument("rho")
    measuring.add_argument("csv")
    measuring.add_argument("--marlin", metavar="LIBRARY")
    measuring.add_argument("--widths", action="store_true")
    measuring.add_argument("--n-k", default="8192x8192,28672x4096,4096x4096")
    measuring.add_argument("--m", default="1,16,64,128,256,1024,4096")
    showing = commands.add_parser("show")
    showing.set_defaults(run=show)
    showing.add_argument("csv")
    showing.add_argument("--plot", metavar="FILE.svg")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
