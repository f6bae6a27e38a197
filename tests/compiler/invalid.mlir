// What the verifiers of both dialects refuse.
// RUN: split-file %s %t
// RUN: not %rho compile %t/role.mlir --from=rho --emit=ptx 2>&1 | FileCheck %t/role.mlir
// RUN: not %rho compile %t/program.mlir --from=rho --emit=ptx 2>&1 | FileCheck %t/program.mlir
// RUN: not %rho compile %t/numbers.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/numbers.mlir
// RUN: not %rho compile %t/shared.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/shared.mlir
// RUN: not %rho compile %t/over_stages.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/over_stages.mlir
// RUN: not %rho compile %t/one_each.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/one_each.mlir
// RUN: not %rho compile %t/outside.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/outside.mlir
// RUN: not %rho compile %t/batch.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/batch.mlir
// RUN: not %rho compile %t/panel.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/panel.mlir
// RUN: not %rho compile %t/copy_panel.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/copy_panel.mlir
// RUN: not %rho compile %t/depth.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/depth.mlir
// RUN: not %rho compile %t/costs.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/costs.mlir
// RUN: not %rho compile %t/free.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/free.mlir
// RUN: not %rho compile %t/mma.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/mma.mlir
// RUN: not %rho compile %t/dot.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/dot.mlir
// RUN: not %rho compile %t/run.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/run.mlir
// RUN: not %rho compile %t/roles.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/roles.mlir
// RUN: not %rho compile %t/cluster.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/cluster.mlir
// RUN: not %rho compile %t/warpgroup_mma.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/warpgroup_mma.mlir
// RUN: not %rho compile %t/box_rows.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/box_rows.mlir
// RUN: not %rho compile %t/box_bytes.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/box_bytes.mlir
// RUN: not %rho compile %t/two_operands.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/two_operands.mlir
// RUN: not %rho compile %t/store_operand.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/store_operand.mlir
// RUN: not %rho compile %t/scale_bits.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/scale_bits.mlir
// RUN: not %rho compile %t/scale_sign.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/scale_sign.mlir
// RUN: not %rho compile %t/scale_words.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/scale_words.mlir
// RUN: not %rho compile %t/element.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/element.mlir
// RUN: not %rho compile %t/decode.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/decode.mlir
// RUN: not %rho compile %t/lanes.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/lanes.mlir
// RUN: not %rho compile %t/table.mlir --from=tile --emit=ptx 2>&1 | FileCheck %t/table.mlir

//--- role.mlir
// CHECK: 'rho.operand' op role is 'bias'; it must be 'weight', 'residual' or 'activation'
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

//--- lanes.mlir
// CHECK: 'tile.fill_pair_tables' op table is of 3 lanes; it must be of 16 from 0 to 65535
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %0 = tile.alloc_shared "pairs" : <65536 x 1>
  tile.fill_pair_tables %0 [1, 2, 3] at 0 : !tile.shared<65536 x 1>
}

//--- table.mlir
// CHECK: 'tile.fill_pair_tables' op buffer has 1024 bytes, its tables 65536
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %0 = tile.alloc_shared "pairs" : <1024 x 1>
  tile.fill_pair_tables %0 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] at 0 : !tile.shared<1024 x 1>
}

//--- numbers.mlir
// CHECK: 'tile.fill_pair_tables' op has 3 numbers for code 8; there must be none, 2 or 4 for one below 16
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %0 = tile.alloc_shared "pairs" : <131072 x 1>
  %1 = arith.constant 1 : i32
  tile.fill_pair_tables %0 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] but %1, %1, %1 at 8 : !tile.shared<131072 x 1>
}

//--- shared.mlir
// CHECK: shared part has 24 bytes; it must be a multiple of 16
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %0 = tile.alloc_shared "x" : <24 x 4>
}

//--- over_stages.mlir
// CHECK: 'tile.for_tiles' op has a buffer over stages that the next tile needs: x
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 1 x 1 panel 4>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %0 = tile.alloc_shared "x" over_stages : <32 x 4>
  %m = arith.constant 1 : i32
  tile.for_tiles 8 x %m x 32 {
  ^bb0(%n: i32, %row: i32, %first: i32, %last: i32, %shares: i32, %share: i32, %place: i32):
  }
}

//--- one_each.mlir
// CHECK: 'tile.for_tiles' op splits k: each CTA has one share
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 2 roles "imfp" cluster 1 x 1 panel 4>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %m = arith.constant 1 : i32
  tile.for_tiles 8 x %m x 32 {
  ^bb0(%n: i32, %row: i32, %first: i32, %last: i32, %shares: i32, %share: i32, %place: i32):
  }
}

//--- outside.mlir
// CHECK: 'tile.for_tiles' op stands outside of tile.kernel
module {
  %m = arith.constant 1 : i32
  tile.for_tiles 8 x %m x 32 one_each {
  ^bb0(%n: i32, %row: i32, %first: i32, %last: i32, %shares: i32, %share: i32, %place: i32):
  }
}

//--- batch.mlir
// CHECK: batch rows of a tile must be a power of two or a multiple of 16, at most 4096, found 24
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 24 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
}

//--- panel.mlir
// CHECK: panels are of 3 warps; their number must divide 4
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 1 x 1 panel 3>, origins = ["gemm"], ctasPerSm = 1 : i64} {
}

//--- copy_panel.mlir
// CHECK: 'tile.copy_panel' op fills share 2 of 2 of 2048 bytes; shares are numbered from 0 and multiples of 16 bytes
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
^bb0(%w: !llvm.ptr<1>):
  %c = arith.constant 0 : i32
  %b = tile.alloc_shared "weight.element" : <2048 x 2>
  tile.copy_panel %w + 0 tile %c of 1024 to %b[%c] panel 2 of 2 : !llvm.ptr<1>, <2048 x 2>
}

//--- depth.mlir
// CHECK: 'tile.pipeline' op depth is 17; it must be between 2 and 16
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %c = arith.constant 0 : i32
  tile.pipeline %c to %c depth 17 produce {
  ^bb0(%kt: i32, %slot: i32):
    tile.yield
  } consume {
  ^bb0(%kt: i32, %slot: i32):
    tile.yield
  }
}

//--- costs.mlir
// CHECK: has 2 parts and 1 costs; they are as many
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 0 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %m = arith.constant 1 : i32
  tile.for_tiles 8 x %m x 32 parts %m, %m cost [4] {
  ^bb0(%n: i32, %row: i32, %first: i32, %last: i32, %shares: i32, %share: i32, %place: i32):
  }
}

//--- free.mlir
// CHECK: a k tile costs 0; it must be at least 1
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 0 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %m = arith.constant 1 : i32
  tile.for_tiles 8 x %m x 32 parts %m, %m cost [4, 0] {
  ^bb0(%n: i32, %row: i32, %first: i32, %last: i32, %shares: i32, %share: i32, %place: i32):
  }
}

//--- mma.mlir
// CHECK: 'tile.mma' op operand A has 1 registers; it must have 4
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %a = arith.constant 0 : i32
  %b = arith.constant dense<0> : vector<2xi32>
  %c = tile.zero : vector<4xf32>
  %d = tile.mma "f16"(%a), %b step 0, %c : vector<2xi32>, vector<4xf32> -> vector<4xf32>
}

//--- dot.mlir
// CHECK: 'tile.dot' op batch rows must be vectors of one length of the accumulator's type
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 2 x 16 x 64 warps 1 x 1 x 1 mma "s8" codes 4 split 1 roles "gemv" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %a = arith.constant 0 : i32
  %b = arith.constant dense<0> : vector<4xi32>
  %c = tile.zero : vector<4xf32>
  %d = tile.dot "s8"(%a, %a), (%b : vector<4xi32>) at 0, %c : vector<4xf32> -> vector<4xf32>
}

//--- run.mlir
// CHECK: 'tile.dot' op batch rows have no numbers of register 4
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 2 x 16 x 64 warps 1 x 1 x 1 mma "s8" codes 4 split 1 roles "gemv" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %a = arith.constant 0 : i32
  %b = arith.constant dense<0> : vector<4xi32>
  %c = tile.zero : vector<4xi32>
  %d = tile.dot "s8"(%a, %a), (%b, %b : vector<4xi32>, vector<4xi32>) at 4, %c : vector<4xi32> -> vector<4xi32>
}

//--- roles.mlir
// CHECK: roles are 'both'; they must be uniform, imfp, excp or gemv
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "both" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
}

//--- cluster.mlir
// CHECK: cluster is 4 x 4; it must have 1 to 8 CTAs
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 4 x 4 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
}

//--- warpgroup_mma.mlir
// CHECK: 'tile.warpgroup_mma' op operand A has 3 registers; it must have 4 for each step and row tile
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %a = arith.constant 0 : i32
  %x = tile.alloc_shared "x" : <2048 x 4>
  %c:2 = tile.warpgroup_mma "f16"(%a, %a, %a), %x[%a] steps 1 from 0 : <2048 x 4> -> vector<4xf32>, vector<4xf32>
}

//--- box_rows.mlir
// CHECK: 'tile.store_box' op slices have 32 rows and the buffer holds 4; they must be multiples of 8 and fill a tile of 64
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 64 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
^bb0(%map: !llvm.ptr):
  %i = arith.constant 0 : i32
  %c = tile.zero : vector<4xf32>
  %y = tile.alloc_shared "y" : <4096 x 4>
  tile.store_box %map tile %i, %i through %y rows 32 as "f16"(%c : vector<4xf32>) : !llvm.ptr, <4096 x 4>
}

//--- box_bytes.mlir
// CHECK: 'tile.store_box' op buffer part has 4096 bytes; 64 rows of f16 have 8192
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 64 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "imfp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
^bb0(%map: !llvm.ptr):
  %i = arith.constant 0 : i32
  %c = tile.zero : vector<4xf32>
  %y = tile.alloc_shared "y" : <4096 x 1>
  tile.store_box %map tile %i, %i through %y rows 64 as "f16"(%c : vector<4xf32>) : !llvm.ptr, <4096 x 1>
}

//--- two_operands.mlir
// CHECK: 'tile.warpgroup_mma' op operand A is in registers and in shared memory; it must be in one of them
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "excp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %a = arith.constant 0 : i32
  %x = tile.alloc_shared "x" : <2048 x 4>
  %y = tile.alloc_shared "y" : <8192 x 3>
  %c:2 = tile.warpgroup_mma "f16"(%a, %a, %a, %a) operand %y[%a] : !tile.shared<8192 x 3>, %x[%a] steps 1 from 0 : <2048 x 4> -> vector<4xf32>, vector<4xf32>
}

//--- store_operand.mlir
// CHECK: 'tile.store_operand' op operand A has 2 registers; it must have 4
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "excp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %a = arith.constant 0 : i32
  %y = tile.alloc_shared "y" : <8192 x 3>
  tile.store_operand(%a, %a) to %y[%a] step 0 row_tile 0 : <8192 x 3>
}

//--- scale_bits.mlir
// CHECK: 'tile.convert_scales' op takes 16 bits from bit 4 of units of 16
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %w = arith.constant dense<0> : vector<1xi32>
  %0 = tile.convert_scales %w from "f16" in 16 at 4 : vector<1xi32> -> vector<2xf32>
}

//--- scale_sign.mlir
// CHECK: 'tile.convert_scales' op takes the sign from bit 20 of units of 16
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %w = arith.constant dense<0> : vector<1xi32>
  %0 = tile.convert_scales %w from "ue4m10" in 16 at 0 sign 20 : vector<1xi32> -> vector<2xf32>
}

//--- scale_words.mlir
// CHECK: 'tile.convert_scales' op takes 4 units of 16 bits from 1 words
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %w = arith.constant dense<0> : vector<1xi32>
  %0 = tile.convert_scales %w from "f16" in 16 at 0 : vector<1xi32> -> vector<4xf32>
}

//--- element.mlir
// CHECK: attribute 'element' failed to satisfy constraint: string attribute names an element type
tile.kernel @k attributes {target = "sm_80", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 2 x 1 mma "f16" codes 4 split 1 roles "uniform" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %n = arith.constant 1.0 : f32
  %0 = tile.pair %n as "f-1"
}

//--- decode.mlir
// CHECK: 'tile.pipeline' op bodies take the k tile and the slot, decode and then consume also the operand's slot
tile.kernel @k attributes {target = "sm_90a", geometry = #tile.geometry<tile 16 x 64 x 64 warps 1 x 4 x 1 mma "f16" codes 4 split 1 roles "excp" cluster 1 x 1 panel 1>, origins = ["gemm"], ctasPerSm = 1 : i64} {
  %c = arith.constant 0 : i32
  tile.pipeline %c to %c depth 4 produce {
  ^bb0(%kt: i32, %slot: i32):
    tile.yield
  } decode {
  ^bb0(%kt: i32, %slot: i32, %operand: i32):
    tile.yield
  } consume {
  ^bb0(%kt: i32, %slot: i32):
    tile.yield
  }
}
