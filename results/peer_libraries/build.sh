#!/bin/bash
# build.sh WORK [cutlass_bf16|cutlass_fp8|qserve|machete_bf16|machete_f16|marlin|tilelang ...]
# Builds the peers' shared libraries in WORK from clean sources there, one compilation at a time:
#   WORK/cutlass    NVIDIA/cutlass 7107b05535f8977f5ecb9d01ee203205b1fd9bc4 (include, tools/util/include, python)
#   WORK/qserve     mit-han-lab/omniserve 02b2925aa6fa3b92b06316a1524b7f38922cd9c8 (kernels/csrc/qgemm)
#   WORK/vllm       vllm-0.33.0.tar.gz from PyPI, unpacked
#   WORK/tilelang   tile-ai/tilelang a35008a42531c62b976ae4cec3855d4383db0f3c (examples/dequantize_gemm)
# Needs nvcc 13.0, g++, for the vLLM ones python3 with jinja2, and for TileLang's a python3 that PYTHON names with
# tilelang 0.1.15.
set -euo pipefail
src=$(cd "$(dirname "$0")" && pwd)
cd "$1"
shift
mkdir -p build
nvcc=("${NVCC:-nvcc}" -std=c++17 --expt-relaxed-constexpr --expt-extended-lambda -DNDEBUG
      -Xcompiler -fPIC,-fvisibility=hidden,-O1 -Xptxas -v)
hopper=(-O3 -gencode=arch=compute_90a,code=sm_90a)
cuda=$(dirname "$(dirname "$(command -v "${NVCC:-nvcc}")")")
objects=()

compile() {  # compile OBJECT ARGUMENTS...
  "${nvcc[@]}" "${@:2}" -o "build/$1.o" 2> >(grep -E 'error|spill' >&2)
  objects+=("build/$1.o")
}

link() {  # link NAME
  g++ -shared -o "$1.so" "${objects[@]}" -L"$cuda/lib64" -lcudart_static -ldl -lrt -lpthread \
    "-Wl,--version-script=$src/exports.map" -Wl,-s -Wl,--no-undefined
  objects=()
}

cutlass() {  # cutlass bf16|fp8 PARTS
  local flags=("${hopper[@]}" -Icutlass/include -Icutlass/tools/util/include)
  [[ $1 = bf16 ]] || flags+=(-DFP8)
  for part in $2; do compile "cutlass_$1_$part" "${flags[@]}" "-DPART=$part" -c "$src/cutlass_mixed.cu"; done
  compile "cutlass_$1_api" "${flags[@]}" -c "$src/cutlass_mixed_api.cu"
  link "cutlass_$1"
}

qserve() {
  for kind in group chn; do
    sed -e 's/, kSmemByteSize>>>/, kSmemByteSize, qserve_stream>>>/' -e '/#include "gemm_cuda.h"/d' \
      "qserve/kernels/csrc/qgemm/w4a8_per_$kind/gemm_cuda.cu" > "build/$kind.inl"
  done
  compile qserve -O2 --use_fast_math -gencode=arch=compute_90,code=sm_90 "-I$src/qserve_shim" -Ibuild \
    '-DGROUP="group.inl"' '-DCHANNEL="chn.inl"' -c "$src/qserve.cu"
  link qserve
}

machete() {  # machete bf16|f16
  local dir=vllm/csrc/quantization/machete
  local flags=("${hopper[@]}" "-I$src/vllm_shim" "-I$dir" -Ivllm/csrc -Icutlass/include -Icutlass/tools/util/include)
  local type=Half
  [[ $1 = f16 ]] || type=BFloat16
  PYTHONPATH=cutlass/python python3 "$src/machete_generate.py" "$dir" "$1"
  compile "machete_$1_api" "${flags[@]}" "-DACTIVATION=$type" -c "$src/machete.cu"
  for file in "$dir"/generated/*.cu; do compile "machete_$1_$(basename "$file" .cu)" "${flags[@]}" -c "$file"; done
  link "machete_$1"
}

marlin() {
  local dir=vllm/csrc/quantization/marlin
  local flags=("${hopper[@]}" -static-global-template-stub=false "-I$src/vllm_shim" -Ibuild/marlin "-I$dir" -Ivllm/csrc)
  mkdir -p build/marlin
  python3 "$src/marlin_generate.py" "$dir" build/marlin
  compile marlin_api "${flags[@]}" -c "$src/marlin.cu"
  for file in "$dir"/{marlin,gptq_marlin_repack}.cu build/marlin/*.cu; do
    compile "marlin_$(basename "$file" .cu)" "${flags[@]}" -c "$file"
  done
  link marlin
}

tilelang() {
  local python=${PYTHON:-python3} package
  package=$("$python" -c 'import importlib.util as u; print(u.find_spec("tilelang").origin)')
  package=${package%/*}

for peer; do
  case $peer in
    cutlass_bf16) cutlass bf16 "0 1 2 3" ;;
    cutlass_fp8) cutlass fp8 "0 1 2" ;;
    qserve) qserve ;;
    machete_*) machete "${peer#machete_}" ;;
    marlin) marlin ;;
    tilelang) tilelang ;;
    *) echo "no peer $peer" >&2; exit 2 ;;
  esac
done
