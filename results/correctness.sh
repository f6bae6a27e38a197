#!/bin/sh
# Runs every shipped gemm against the exact reference and writes one CSV line a run to standard
# output. Usage: correctness.sh RHO DEVICE "M N K"...   (RHO: the tool; DEVICE: as of rho run)
set -eu
rho=$1 device=$2
shift 2
echo "device,gemm,m,n,k,outputs,largest_error,its_bound,worst_error_over_bound,result"

# one FILE GEMM M N K
one() {
  "$rho" run "$1" --gemm "$2" --m "$3" --n "$4" --k "$5" --device "$device" --no-cache --verify full |
    awk -v gemm="$2" -v shape="$3,$4,$5" '
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
  for gemm in $("$rho" check "$file" | sed -n 's/.*: gemm \([A-Za-z0-9_]*\): .*/\1/p'); do
    for shape in "$@"; do
      one "$file" "$gemm" $shape
    done
  done
done
