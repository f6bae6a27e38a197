#!/usr/bin/env python3
r"""Times kernels for 4-bit weights of other projects beside Rho's, in one run on one GPU.

Usage: peers.py measure RHO TABLE.csv [--libraries FOLDER] [--gemm GEMM,...] [--n-k NxK,...] [--m M,...]
       peers.py measure RHO TABLE.csv --widths [--n-k NxK,...] [--m M,...]
       peers.py show TABLE.csv... [--plot FILE.svg]

RHO is the tool. The others are

- Humming (`pip install humming-kernels==0.1.20`) and PyTorch's `_weight_int4pack_mm`;
- with --libraries FOLDER vLLM's Machete and Marlin, CUTLASS's mixed input (its example 55), QServe and TileLang's
  example of mxfp4 weights:

      git clone https://github.com/NVIDIA/cutlass FOLDER/cutlass && git -C FOLDER/cutlass checkout 7107b055
      git clone https://github.com/mit-han-lab/omniserve FOLDER/qserve && git -C FOLDER/qserve checkout 02b2925a
      # vllm-0.33.0.tar.gz of https://pypi.org/project/vllm/0.33.0/#files, unpacked as FOLDER/vllm
      git clone https://github.com/tile-ai/tilelang FOLDER/tilelang && git -C FOLDER/tilelang checkout a35008a4
      pip install tilelang==0.1.15
      results/peer_libraries/build.sh FOLDER cutlass_bf16 cutlass_fp8 qserve machete_bf16 machete_f16 marlin tilelang

Every kernel is timed as `rho bench --suite llama` times its own: random numbers, weights rotated past four times
the L2 cache, the median of replays of a CUDA graph of at least 20 launches, the kernel alone. Activations of 8
bits are quantized before. Humming, Machete, Marlin and QServe choose their schedules by themselves, as Rho's planner
does (`--untuned`). CUTLASS and TileLang leave that to whoever calls them: at each m all configurations that are
built are tried, and the fastest counts (`schedule`).
`ready_ms` is how long all kernels of a layer take to compile, on all cores and without caches: of Humming
the first call of a layer, which makes a kernel for each range of m, of Rho
`rho cache warm` for the values of m here, the start of the process among it. Outputs of others are compared with the
product of their own dequantized weights (`error`: the norm of the difference, in norms of the product).

`show` prints the time of each peer in times of Rho's gemm that is launched serially: geometric means of the
shapes, and the least and most of all.
"""

import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import peer_kernels as peers
from peer_kernels import torch

HERE = pathlib.Path(__file__).parent
FIELDS = ["gemm", "kernel", "device", "n", "k", "m", "launch", "us", "us_min", "us_max", "launches", "error",
          "ready_ms", "schedule"]
# Rho's gemm -> of peers beside Humming their names in tables, and what makes them of (options, n, k).
OTHERS = {
    "int4_g128_bf16": {
        "torch_int4pack": lambda options, n, k: peers.Int4Pack(n, k),
        "machete": lambda options, n, k: peers.Machete(options.libraries, "bf16", n, k),
        "marlin": lambda options, n, k: peers.Marlin(options.libraries, "bf16", n, k),
        "cutlass": lambda options, n, k: peers.Cutlass(options.libraries, "bf16", n, k),
    },
    "int4_g128_f16": {
        "machete": lambda options, n, k: peers.Machete(options.libraries, "f16", n, k),
        "marlin": lambda options, n, k: peers.Marlin(options.libraries, "f16", n, k),
    },
    "int4_g128_int8": {
        "marlin": lambda options, n, k: peers.Marlin(options.libraries, "int8", n, k),
    },
    "int4_rounded_g128_fp8": {  # CUTLASS's products of codes and scales are rounded, too
        "cutlass": lambda options, n, k: peers.Cutlass(options.libraries, "fp8", n, k),
    },
    "int4_channel_int8": {
        "qserve": lambda options, n, k: peers.QServe(options.libraries, "channel", n, k),
    },
    "mxfp4_bf16": {
        "tilelang": lambda options, n, k: peers.TileLang(options.libraries, n, k),
    },
    "qoq_g128_s8": {
        "qserve": lambda options, n, k: peers.QServe(options.libraries, "group", n, k),
    },
}
# Files here of what is no shipped gemm, nor in peers.rho.
FILES = {"int4_rounded_g128_fp8": "rounded.rho", "qoq_g128_s8": "library.rho"}


def file_of(gemm):
    if gemm in peers.FOUR_BITS:
        return HERE.parent / f"kernels/gemms/{gemm}.rho"
    return HERE / FILES.get(gemm, "peers.rho")


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


def asked_for(options):
    """Rho's gemms, and for each the peers beside it."""
    gemms = peers.OTHER_WIDTHS if options.widths else peers.FOUR_BITS
    table = {gemm: {"humming": lambda _, n, k, gemm=gemm: peers.Humming(gemm, n, k)} for gemm in gemms}
    for gemm, others in OTHERS.items():
        for name, make in others.items():
            if not options.widths and (options.libraries or name == "torch_int4pack"):
                table.setdefault(gemm, {})[name] = make
    return {gemm: table[gemm] for gemm in options.gemm.split(",")} if options.gemm else table


def peer_rows(options, gemm, kernel, make, n, k):
    peer = make(options, n, k)
    for m in map(int, options.m.split(",")):
        (us, least, most, launches), error, schedule = peer.time(m)
        yield {"gemm": gemm, "kernel": kernel, "device": torch.cuda.get_device_name(), "n": n, "k": k,
               "m": m, "us": f"{us:.3f}", "us_min": f"{least:.3f}", "us_max": f"{most:.3f}",
               "launches": launches, "error": error or "", "schedule": schedule,
               "ready_ms": "" if peer.ready_ms is None else f"{peer.ready_ms:.0f}"}


def measure(options):
    torch.manual_seed(1)
    gemms = asked_for(options)
    with open(options.csv, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n", restval="")
        writer.writeheader()
        for n, k in ([int(size) for size in shape.split("x")] for shape in options.n_k.split(",")):
            print(f"{n} x {k}: rho", file=sys.stderr, flush=True)
            writer.writerows(rho_rows(options.rho, gemms, n, k, options.m))
            for gemm, kernel, make in ((gemm, *peer) for gemm, beside in gemms.items() for peer in beside.items()):
                print(f"{n} x {k}: {kernel}, {gemm}", file=sys.stderr, flush=True)
                for row in peer_rows(options, gemm, kernel, make, n, k):
                    writer.writerow(row)
                    file.flush()
                torch.cuda.empty_cache()  # each fills much memory


def rows_of(tables):
    for table in tables:
        with open(table, newline="") as file:
            yield from (row for row in csv.DictReader(file) if row["gemm"])


def show(arguments):
    own, others = {}, {}
    for row in rows_of(arguments.csv):
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
    colors = {gemm: f"C{i}" for i, gemm in enumerate(dict.fromkeys(gemm for _, gemm in ratios))}
    markers = dict(zip(dict.fromkeys(kernel for kernel, _ in ratios), ".vs^Dx*"))
    figure, axes = pyplot.subplots(1, len(shapes), figsize=(4 * len(shapes) + 2, 4), sharey=True, squeeze=False)
    for axis, shape in zip(axes[0], shapes):
        for (kernel, gemm), places in ratios.items():
            line = {place[1]: ratio for place, ratio in places.items() if place[0] == shape}
            axis.plot(line.keys(), line.values(), label=f"{kernel}, {gemm}", color=colors[gemm], markersize=4,
                      marker=markers[kernel], linestyle="-" if kernel == "humming" else "--")
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
    measuring.add_argument("--libraries", metavar="FOLDER")
    measuring.add_argument("--widths", action="store_true")
    measuring.add_argument("--gemm", metavar="GEMM,...")
    measuring.add_argument("--n-k", default="8192x8192,28672x4096,4096x4096")
    measuring.add_argument("--m", default="1,16,64,128,256,1024,4096")
    showing = commands.add_parser("show")
    showing.set_defaults(run=show)
    showing.add_argument("csv", nargs="+")
    showing.add_argument("--plot", metavar="FILE.svg")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
