"""results/targets.py on tables made up for it."""

import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
path = pathlib.Path(__file__).resolve().parents[2] / "results"
spec = importlib.util.spec_from_file_location("targets", path / "targets.py")
targets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(targets)


def row(kernel, m, us, n=64, **more):
    return {"kernel": kernel, "n": str(n), "k": "128", "m": str(m), "us": str(us),
            "launch": "serial", "weight_bytes": "30000000", "over_floor": "", **more}


def target(m, us, kind="W4A8"):
    return {"n": "64", "k": "128", "class": kind, "m": str(m), "target_us": str(us), "peer_us": "20"}


class TargetsTest(unittest.TestCase):
    def test_the_best_of_the_launches_counts(self):
        suite = targets.Suite([row("int4_g128_int8", 1, 5),
                               row("int4_g128_int8", 1, 4, launch="dependent"),
                               row("floor_serial", "", 1)])
        text = targets.reached(suite, [target(1, 4.4), target(16, 5)], [])
        self.assertIn("Times: 1 of 1 met", text)
        self.assertIn("| 64x128 | int4_g128_int8 | 1 | 4.4 | 4.00 | dependent | yes, 9.1% faster |",
                      text)
        self.assertIn("| 64x128 | int4_g128_int8 | 16 | 5 | not measured |", text)
        self.assertIn("| 64x128 | liquidquant_int8 | 1 | 4.4 | not measured |", text)

    def test_a_time_above_its_target_is_not_met(self):
        suite = targets.Suite([row("int4_g128_bf16", 1, 12)])
        self.assertIn("| 12.00 | serial | no, 20.0% slower |",
                      targets.reached(suite, [target(1, 10, "W4A16")], []))

    def test_the_busiest_of_what_was_counted_comes_first(self):
        counted = {"kernel": "int4_g128_bf16", "n": "64", "k": "128", "m": "1",
                   "tensor_pct": "9", "dram_pct": "60.4", "l2_pct": "70", "issue_pct": "8"}
        suite = targets.Suite([row("int4_g128_bf16", 1, 12)])
        self.assertIn("| no, 20.0% slower |  | L2 70%, memory 60%, tensor cores 9% |",
                      targets.reached(suite, [target(1, 10, "W4A16")], [counted]))

    def test_what_the_peer_took_of_its_reference_stands_beside(self):
        missed = [row("int4_g128_int8", 1, 12), row("liquidquant_int8", 1, 13)]
        peers = [row("cublaslt_fp8", 1, 25), row("cublaslt_int8", 1, 30), row("cublaslt_bf16", 1, 10)]
        text = targets.reached(targets.Suite(missed + peers), [target(1, 10)], [])
        self.assertIn("| no, 20.0% slower | 1.25 |", text)
        self.assertIn("| no, 30.0% slower | 1.25 |", text)
        self.assertIn("1 of the 2 others miss by no more than the peer itself is slower", text)

    def test_means_are_geometric_and_over_the_fastest_peer(self):
        suite = targets.Suite([row("int4_g128_int8", 64, 2), row("cublaslt_fp8", 64, 4),
                               row("cublaslt_int8", 64, 2.5), row("int4_g128_int8", 64, 5, n=32),
                               row("cublaslt_fp8", 64, 10, n=32), row("int4_g128_int8", 512, 2),
                               row("cublaslt_int8", 512, 1)])
        text = targets.means(suite)
        self.assertIn("| 64 | 1.50 | 1.581 | yes, 5.1% faster |", text)
        self.assertIn("| 512 |  | 0.500 | reported only |", text)

    def test_relations_are_of_launches_that_both_have(self):
        suite = targets.Suite([row("int4_g128_fp8", 1, 6), row("int4_g128_int8", 1, 5),
                               row("int4_g128_int8", 1, 4, launch="dependent")])
        self.assertIn("| int4_g128_fp8 | int4_g128_int8 | 1 | 1.05 | 1.200 |",
                      targets.relations(suite))

    def test_relations_count_the_shapes_within(self):
        suite = targets.Suite([row("nvfp4_bf16", 1, 1.05), row("int4_g128_bf16", 1, 1),
                               row("nvfp4_bf16", 1, 1.2, n=32), row("int4_g128_bf16", 1, 1, n=32)])
        self.assertIn("| nvfp4_bf16 | int4_g128_bf16 | 1 | 1.10 | 1.122 | 1.200 at 32x128 | 1 of 2 |",
                      targets.relations(suite))

    def test_the_floor_is_for_large_weights(self):
        suite = targets.Suite([row("int4_g128_int8", 1, 2, over_floor="1.2"),
                               row("int4_g128_int8", 1, 2, n=32, over_floor="1.3"),
                               row("int4_g128_int8", 1, 2, n=16, over_floor="2",
                                   weight_bytes="28000000")])
        self.assertIn("| int4_g128_int8 | serial | 1 | 1.249 | 1.300 at 32x128 | 1 of 2 |",
                      targets.floor(suite))

    def test_what_is_committed_is_read(self):
        committed = targets.read(path / "targets.csv")
        self.assertEqual(len(committed), 42)
        suite = targets.Suite(targets.read(path / "h200" / "llama.csv"))
        counters = targets.read(path / "h200" / "counters.csv")
        self.assertIn(" of 63 met", targets.reached(suite, committed, counters))


if __name__ == "__main__":
    unittest.main()
