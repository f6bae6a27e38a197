#!/bin/sh
# Runs every shipped gemm against the exact reference and writes one CSV line a run to standard
# output. Usage: correctness.sh RHO DEVICE "M N K"...   (RHO: the tool; DEVICE: as of rho run)
set -eu
rho=$1 device=$2
shift 2
echo "device,gemm,m,n,k,outputs,largest_error,its_bound,worst_error_over_bound,result"

# one FILE M N K
one() {
  "$rho" run "$1" --m "$2" --n "$3" --k "$4" --device "$device" --no-cache --verify full |
    awk -v gemm="$(basename "$1" .rho)" -v shape="$2,$3,$4" '
      function after(word, i) {
        for (i = 1; i < NF; ++i)
          if ($i == word) { sub(",", "", $(i + 1)); return $(i + 1) }
      }
      $1 == "device" { $1 = ""; sub("^ +", ""); gsub(",", ""); name = $0 }
      $1 == "largest" { error = after("error"); bound = after("bound") }
      $1 == "worst" { ratio = $NF }
      $1 == "result" { result = $2; outputs = $3 }
      END { sub(":", "", result); print name "," gemm "," shape "," outputs "," error "," bound "," ratio "," result }'
}

for file in "$(dirname "$0")"/../kernels/gemms/*.rho; do
  for shape in "$@"; do
    one "$file" $shape
  done
done
