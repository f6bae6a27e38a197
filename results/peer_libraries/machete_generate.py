"""machete_generate.py MACHETE_DIRECTORY f16|bf16: runs Machete's own generate.py for one of its type pairs,
that activation with u4b8 weights and group scales of the activation's type (its heuristic kept whole)."""
import sys
from pathlib import Path

machete, activation = Path(sys.argv[1]), sys.argv[2]
sys.path[:0] = [str(machete), str(machete / "../../cutlass_extensions")]
import generate

sources = generate.create_sources


def create_sources(configs):
    types = generate.VLLMDataType.u4b8, getattr(generate.DataType, activation)
    return sources([c for c in configs if (c.types.b, c.types.a) == types], num_impl_files=3)


generate.create_sources = create_sources
generate.generate()
