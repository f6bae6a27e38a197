#!/usr/bin/env python3
"""Whether machine code writes operand A of a wgmma before its batch has been waited for.

Usage: operand_writes.py CUBIN...   (needs nvdisasm)

The registers of an instruction's operand A are read until a wait for its batch. The code is followed
once from its start to its end, the innermost loop around wgmma twice. Prints each such write, how many
instructions write registers while batches are on their way, and how many of these are wrong.
"""
import re
import subprocess
import sys

INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.*?)\s*;")
MMA = re.compile(r"[A-Z]GMMA\S*\s+R\d+,\s*R(\d+),")
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (\w+)")
NO_RESULT = ("ST", "RED", "BRA", "BAR", "SYNCS", "WARPGROUP", "U", "R2UR", "ISETP", "FSETP", "PLOP3")


def instructions_of(cubin):
    """The instructions, those of the innermost loop around wgmma twice."""
    text = subprocess.run(["nvdisasm", "-c", cubin], capture_output=True, text=True, check=True).stdout
    code, labels, loop = [], {}, None
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label[1]] = len(code)
        elif found := INSTRUCTION.match(line):
            code.append(found[1])
    for end, line in enumerate(code):
        target = re.match(r"BRA.*`\((\.L\w+)\)", line)
        start = labels.get(target[1], end + 1) if target else end + 1
        if any("GMMA" in each for each in code[start:end + 1]):
            if loop is None or end - start < loop[1] - loop[0]:
                loop = start, end
    return code if loop is None else code[:loop[1] + 1] + code[loop[0]:]


def written_by(line):
    """Registers that an instruction writes."""
    operation, _, operands = line.partition(" ")
    result = re.match(r"(?:U?P\w+,\s*)*R(\d+)", operands.strip())
    if operation.startswith(NO_RESULT) or not result:
        return set()
    wide = 4 if ".128" in operation else 2 if re.search(r"\.64|WIDE|CS2R", operation) else 1
    return set(range(int(result[1]), int(result[1]) + wide))


def main():
    writes = wrong = 0
    for cubin in sys.argv[1:]:
        batches, begun = [], set()
        for line in instructions_of(cubin):
            if "GMMA" in line:
                if operand := MMA.match(line):
                    begun |= set(range(int(operand[1]), int(operand[1]) + 4))
                if "gsb0" in line:
                    batches.append(begun)
                    begun = set()
            elif wait := WAIT.match(line):
                del batches[:max(0, len(batches) - int(wait[1], 0))]
            elif written := written_by(line):
                held = begun.union(*batches)
                writes += bool(held)
                if held & written:
                    wrong += 1
                    print(f"{cubin}: {line}")
    print(f"{len(sys.argv) - 1} kernels, {writes} writes while batches are on their way, {wrong} wrong")


if __name__ == "__main__":
    main()
