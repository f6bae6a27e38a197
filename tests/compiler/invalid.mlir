// What the verifiers of both dialects refuse.
// RUN: split-file %s %t
// RUN: not %rho compile %t/role.mlir --from=rho --emit=ptx 2>&1 | FileCheck %t/role.mlir
// RUN: not %rho compile %t/program.mlir --from=rho --emit=ptx 2>&1 | FileCheck %t/program.mlir
// RUN: not %rho compile %t/shared.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/shared.mlir
// RUN: not %rho compile %t/depth.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/depth.mlir
// RUN: not %rho compile %t/mma.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/mma.mlir

//--- role.mlir
// CHECK: 'rho.operand' op role is 'bias'; it must be 'weight' or 'activation'
rho.gemm @g attributes {weight = "f16", activation = "f16", output = "f16", plan = ""} {
  %0 = rho.operand "bias" : <"n k", "real">
  rho.return %0 times 1.0 : <"n k", "real">
}

//--- program.mlir
// CHECK: 'rho.decode' op malformed decode program at 't0 = nor w0 w0'
rho.gemm @g attributes {weight = "f16", activation = "f16", output = "f16", plan = ""} {
  %0 = rho.component "weight" "element" : <"n k", "s4">
  %1 = rho.decode %0 forms [] program "params 0;t0 = nor w0 w0;out t0" log2_factor 0 : (!rho.tensor<"n k", "s4">) -> !rho.tensor<"n k", "f16">
  rho.return %1 times 1.0 : <"n k", "f16">
}

//--- shared.mlir
// CHECK: shared part has 24 bytes; it must be a multiple of 16
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 mma "f16" split 1>, origins = ["gemm"]} {
  %0 = tile.alloc_shared "x" : <24 x 4>
}

//--- depth.mlir
// CHECK: 'tile.pipeline' op depth is 9; it must be between 2 and 8
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 mma "f16" split 1>, origins = ["gemm"]} {
  %c = arith.constant 0 : i32
  tile.pipeline %c to %c depth 9 produce {
  ^bb0(%kt: i32, %slot: i32):
    tile.yield
  } consume {
  ^bb0(%kt: i32, %slot: i32):
    tile.yield
  }
}

//--- mma.mlir
// CHECK: 'tile.mma' op operand A has 1 registers; it must have 4
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 mma "f16" split 1>, origins = ["gemm"]} {
  %a = arith.constant 0 : i32
  %b = arith.constant dense<0> : vector<2xi32>
  %c = tile.zero : vector<4xf32>
  %d = tile.mma "f16"(%a), %b step 0, %c : vector<2xi32>, vector<4xf32> -> vector<4xf32>
}
