"""marlin_generate.py MARLIN_DIRECTORY OUT: runs vLLM's own generate_kernels.py for sm_90, limited to u4b8 weights with
groups of 128 under f16, bf16 and int8 activations."""
import sys

directory, out = sys.argv[1:3]
sys.argv = ["generate_kernels.py", "9.0", out]
sys.path.insert(0, directory)
import generate_kernels as g

g.QUANT_CONFIGS = [
    c | {"group_blocks": [8]}
    for c in g.QUANT_CONFIGS
    if c["b_type"] == "kU4B8" and c.get("a_type") in (None, ["kS8"])
]
g.remove_old_kernels()
g.generate_new_kernels()
