#!/usr/bin/env python3
"""Writes FILE.safetensors with synthetic weights to compare formats on: rows of Student's t numbers
with 5 degrees of freedom (student), of normal ones (normal), of normal ones with an outlier in every
128 (outliers), and of normal ones of which every thousandth is a hundred times as large (extremes).

usage: weights.py FILE.safetensors [ROWS] [K] [KIND...]    (normal outliers student)
"""
import array
import json
import random
import struct
import sys


def student(rng, freedom=5):
    chi = rng.gammavariate(freedom / 2, 2)
    return rng.gauss(0, 1) / (chi / freedom) ** 0.5


def outlier(rng):
    return rng.gauss(0, 1) * (10 if rng.randrange(128) == 0 else 1)


def main():
    path = sys.argv[1]
    rows, k = (int(arg) for arg in (sys.argv[2:4] + ["256", "2048"][len(sys.argv[2:4]):]))
    kinds = sys.argv[4:] or ["normal", "outliers", "student"]
    rng = random.Random(7)
    draws = {"normal": lambda: rng.gauss(0, 1), "outliers": lambda: outlier(rng),
             "student": lambda: student(rng),
             "extremes": lambda: rng.gauss(0, 1) * (100 if rng.randrange(1000) == 0 else 1)}
    header, data = {}, b""
    for name in kinds:
        numbers = array.array("f", (0.02 * draws[name]() for _ in range(rows * k))).tobytes()
        header[name] = {"dtype": "F32", "shape": [rows, k],
                        "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
