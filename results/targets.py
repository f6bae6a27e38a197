#!/usr/bin/env python3
"""What a llama suite reached of its targets, as markdown tables.

Usage: targets.py [SUITE.csv ...]   (default: h200/llama.csv and h200/dependent.csv beside this file)

SUITE.csv is what `rho bench --suite llama --csv` writes. A time is the best of all of them and of the
ways of launching, in relations of those that both kernels have; ratios of times are below 1 where the
first is faster. Counters are of one launch of
a kernel that was planned for serial launches (h200/counters.csv). "peer" is what the fastest peer of a
class took in these tables, of what it took on the H200 and day that targets.csv has its times from.
"""

import csv
import itertools
import math
import pathlib
import sys

# Gemms that a class of target times is for.
CLASSES = {
    "W4A8": ["liquidquant_int8", "int4_g128_int8"],
    "W4A16": ["int4_g128_bf16"],
}

# Least geometric mean, over the shapes, of the speed-up of these gemms over the fastest of these peers:
# pairs of the largest m and the speed-up, None where it is only reported.
MEANS = {
    "W4A8": (["int4_channel_int8"] + CLASSES["W4A8"], ["cublaslt_fp8", "cublaslt_int8"],
             [(64, 1.5), (128, 1.2), (256, 1.0), (512, None), (math.inf, 0.97)]),
    "W4A16": (CLASSES["W4A16"], ["cublaslt_bf16"],
              [(16, 2.5), (32, None), (64, 1.8), (128, None), (256, 1.02), (512, None),
               (math.inf, 0.97)]),
}

# The first takes at most this many times as long as the second.
RELATIONS = [
    ("nvfp4_bf16", "int4_g128_bf16", 1.10),
    ("int4_g128_fp8", "int4_g128_int8", 1.05),
    ("int4_channel_fp8", "int4_channel_int8", 1.05),
    ("int4_g128_int4_g128", "int4_g128_int8", 1.10),
    ("int4_channel_int4", "int4_channel_int8", 1.10),
]

# Of the time of reading the weight alone, for m up to 16 and weights of so many bytes.
MOST_OVER_FLOOR = 1.25
LEAST_FLOOR_BYTES = 29e6


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table(title, head, rows):
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def verdict(ratio):
    """Whether a time that is `ratio` times its target meets it, and by how much."""
    percent = 100 * (ratio - 1)
    return f"yes, {-percent:.1f}% faster" if ratio <= 1 else f"no, {percent:.1f}% slower"


class Suite:
    """The measured times of one run."""

    def __init__(self, rows):
        self.rows = [row for row in rows if row["m"]]  # without those of the floor
        self.best = {}  # (kernel, n, k, m) -> (us, launch)
        self.ways = {}  # the same -> {launch: us}
        for row in self.rows:
            key = (row["kernel"], int(row["n"]), int(row["k"]), int(row["m"]))
            time = (float(row["us"]), row.get("launch", ""))
            self.best[key] = min(self.best.get(key, time), time)
            self.ways.setdefault(key, {})[time[1]] = time[0]
        self.sizes = sorted({key[3] for key in self.best})

    def shapes(self, kernel, m):
        return [key[1:3] for key in self.best if key[0] == kernel and key[3] == m]

    def ratios(self, kernel, others, m):
        """(time / fastest of the others, shape) at every shape where all were measured."""
        found = []
        for n, k in self.shapes(kernel, m):
            times = [self.best[(other, n, k, m)][0] for other in others
                     if (other, n, k, m) in self.best]
            if times:
                found.append((self.best[(kernel, n, k, m)][0] / min(times), f"{n}x{k}"))
        return found

    def like_ratios(self, kernel, base, m):
        """(time / that of the base, shape), each the best of the ways that both were launched in."""
        found = []
        for n, k in self.shapes(kernel, m):
            own, other = (self.ways.get((name, n, k, m), {}) for name in (kernel, base))
            both = own.keys() & other.keys()
            if both:
                found.append((min(own[way] for way in both) / min(other[way] for way in both),
                              f"{n}x{k}"))
        return found


COUNTERS = {"tensor cores": "tensor_pct", "memory": "dram_pct", "L2": "l2_pct", "issue": "issue_pct"}


def busiest(counters):
    """What was busy in a launch, the busiest first: percent of its peak rate over the launch."""
    shares = sorted(((float(counters[column]), name) for name, column in COUNTERS.items()), reverse=True)
    return ", ".join(f"{name} {share:.0f}%" for share, name in shares[:3])


def peer_over_reference(suite, target):
    """How many times as long as when its target was set the peer of a class took; None if not measured."""
    _, peers, _ = MEANS[target["class"]]
    shape = tuple(int(target[name]) for name in ("n", "k", "m"))
    times = [suite.best[(peer, *shape)][0] for peer in peers if (peer, *shape) in suite.best]
    return min(times) / float(target["peer_us"]) if times else None


def reached(suite, targets, counters):
    counted = {(row["kernel"], row["n"], row["k"], row["m"]): row for row in counters}
    rows, met, judged, like_peer = [], 0, 0, 0
    for name, kernels in CLASSES.items():
        for kernel, target in itertools.product(kernels, targets):
            if target["class"] != name:
                continue
            n, k, m = int(target["n"]), int(target["k"]), int(target["m"])
            row = [f"{n}x{k}", kernel, str(m), target["target_us"]]
            if (kernel, n, k, m) not in suite.best:
                rows.append(row + ["not measured", "", "", "", ""])
                continue
            us, launch = suite.best[(kernel, n, k, m)]
            ratio = us / float(target["target_us"])
            judged += 1
            met += ratio <= 1
            peer = peer_over_reference(suite, target)
            like_peer += peer is not None and 1 < ratio <= peer
            seen = counted.get((kernel, target["n"], target["k"], target["m"]))
            rows.append(row + [f"{us:.2f}", launch, verdict(ratio), f"{peer:.2f}" if peer else "",
                               busiest(seen) if seen else ""])
    head = ["n x k", "kernel", "m", "target us", "reached us", "launch", "met", "peer", "busy"]
    note = (f"{like_peer} of the {judged - met} others miss by no more than the peer itself is slower than when"
            " the targets were set.")
    return table(f"Times: {met} of {judged} met", head, rows) + "\n" + note + "\n"


def means(suite):
    rows = []
    for kernels, peers, limits in MEANS.values():
        for kernel in kernels:
            for m in suite.sizes:
                ratios = suite.ratios(kernel, peers, m)
                if not ratios:
                    continue
                speedup = 1 / mean([ratio for ratio, _ in ratios])
                least = next(limit for most, limit in limits if m <= most)
                rows.append([kernel, " or ".join(peers), str(m), f"{least:.2f}" if least else "",
                             f"{speedup:.3f}",
                             verdict(least / speedup) if least else "reported only"])
    head = ["kernel", "over the faster of", "m", "target", "speed-up", "met"]
    return table("Geometric means over the suite", head, rows)


def relations(suite):
    rows = []
    for kernel, base, most in RELATIONS:
        for m in suite.sizes:
            ratios = suite.like_ratios(kernel, base, m)
            if not ratios:
                continue
            average = mean([ratio for ratio, _ in ratios])
            worst, shape = max(ratios)
            within = sum(ratio <= most for ratio, _ in ratios)
            rows.append([kernel, base, str(m), f"{most:.2f}", f"{average:.3f}",
                         f"{worst:.3f} at {shape}", f"{within} of {len(ratios)}"])
    head = ["kernel", "time over that of", "m", "most", "geometric mean", "worst", "shapes within"]
    return table("Relations at equal m", head, rows)


def floor(suite):
    found = {}  # (kernel, launch, m) -> [(ratio, shape)]
    for row in suite.rows:
        if row.get("over_floor") and float(row["weight_bytes"]) >= LEAST_FLOOR_BYTES:
            found.setdefault((row["kernel"], row["launch"], int(row["m"])), []).append(
                (float(row["over_floor"]), f"{row['n']}x{row['k']}"))
    rows = []
    for (kernel, launch, m), ratios in sorted(found.items()):
        worst, shape = max(ratios)
        within = sum(ratio <= MOST_OVER_FLOOR for ratio, _ in ratios)
        rows.append([kernel, launch, str(m), f"{mean([ratio for ratio, _ in ratios]):.3f}",
                     f"{worst:.3f} at {shape}", f"{within} of {len(ratios)}"])
    head = ["kernel", "launch", "m", "geometric mean", "worst", "shapes within"]
    title = (f"Time over the floor, at most {MOST_OVER_FLOOR}, weights of "
             f"{LEAST_FLOOR_BYTES / 1e6:.0f} MB up")
    return table(title, head, rows)


def report(suite_rows, targets, counters):
    suite = Suite(suite_rows)
    return "\n".join([reached(suite, targets, counters), means(suite), relations(suite), floor(suite)])


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__.strip())
    here = pathlib.Path(__file__).parent
    paths = sys.argv[1:] or [here / "h200/llama.csv", here / "h200/dependent.csv"]
    print(report([row for path in paths for row in read(path)], read(here / "targets.csv"),
                 read(here / "h200/counters.csv")), end="")
