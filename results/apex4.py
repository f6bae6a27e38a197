#!/usr/bin/env python3
"""Predicted speed-ups over f16 for the GPUs of APEX4's table 1, as markdown tables.

Usage: apex4.py RHO   (RHO: the tool)

Plans n = k = 8192 with the gemms of apex4_policy.json, for launches repeated on the same operands.
f16 is what a library's product is predicted to take, the paper's baseline being cuBLAS. The A100 is
there twice: with its fastest s4 instruction, and with the paper's.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).parent
M16N8K32 = "a100_40g, m16n8k32"
DEVICES = {"a100_40g": "a100_40g", M16N8K32: FOLDER / "a100_m16n8k32.rho", "rtx_3090": "rtx_3090", "a40": "a40",
           "l40s": "l40s"}

# Figure 1 and section 5.3, W4A4 in groups of 128: ranges as the text has them.
PRINTED = {
    (M16N8K32, "16"): "1.7",
    ("rtx_3090", "16"): "3.6",
    ("l40s", "16"): "8.0",
    (M16N8K32, "8192"): "0.43 to 0.47",
    ("rtx_3090", "8192"): "2.0 to 2.5",
    ("l40s", "8192"): "1.9 to 2.1",
}


def rows(rho, device):
    """The CSV rows of one device."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        subprocess.run(
            [rho, "plan", FOLDER / "apex4.json", "--policy", FOLDER / "apex4_policy.json", "--device", device, "--warm",
             "--csv", file.name], check=True, stdout=subprocess.DEVNULL)
        with open(file.name, newline="") as text:
            return list(csv.DictReader(text))


def main(rho):
    tables = {}
    gemms, sizes = [], []
    for device in DEVICES:
        for row in rows(rho, DEVICES[device]):
            if row["gemm"] not in gemms:
                gemms.append(row["gemm"])
            if row["m"] not in sizes:
                sizes.append(row["m"])
            speed = float(row["f16_library_us"]) / float(row["predicted_us"]) if row["predicted_us"] else None
            tables[row["m"], device, row["gemm"]] = "-" if speed is None else f"{speed:.2f}"
    for m in sizes:
        print(f"m = {m}\n\n| GPU | printed, g128 | " + " | ".join(gemms) + " |")
        print("|---|---|" + "--:|" * len(gemms))
        for device in DEVICES:
            print(f"| {device} | {PRINTED.get((device, m), '')} | "
                  + " | ".join(tables[m, device, gemm] for gemm in gemms) + " |")
        print()


if __name__ == "__main__":
    main(sys.argv[1])
