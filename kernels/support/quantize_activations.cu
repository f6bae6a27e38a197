// Quantizes activations: x [m][k] in f32, f16 or bf16 -> codes of a format, in one launch. One CTA
// a row; two where something depends on the numbers of all rows: a component per tensor, or which
// part of the format has which block of k.
//
// Compiled by NVRTC at run time. "rho_format.cuh" is generated from the format's declaration by
// runtime/QuantizerSource.cpp, which says what it defines. The codes are bit for bit those of
// dsl::quantize on the host: the same operations in double in the same order, reductions whose
// order does not matter. Build with --fmad=false.
//
// Output, see compiler::ActivationLayout: element codes row-major, `pitch` bytes a row, sub-byte
// codes low nibble first, signed codes of fewer than elementBits bits sign-extended, zero past k;
// group components [ceil(k/(w G))][groupStride][w] with w = groupsPerWord, zero past the last
// group, row components [m], those in spare bits with their host; of a partition also which part
// has which k tiles.

#include "quantize_numbers.cuh"
#include "quantize_rows.cuh"
#include "rho_format.cuh"

#include "quantize_elements.cuh"

// As quantizerLaunch() in runtime/QuantizerSource.cpp has it.
struct Arguments {
  const unsigned char *x;
  Input input;
  long long stride, m, k, groupStride;
  long long tileK;        // of a partition: of the gemm's k tiles
  int *tiles;             // which part has which of them
  unsigned char *scratch; // see Scratch
  long long given;        // of the components per tensor, a bit each: what is in memory stays
  long long pitch[partCount];
  long long most[partCount]; // blocks of a partition that the part may have
  unsigned char *buffers[bufferCount];
};

template <class Part>
__device__ Row<Part> rowOf(const Arguments &a, long long row, const int *choice) {
  const int width = a.input == Input::F32 ? 4 : 2;
  return {a.x + row * a.stride * width,  a.input, width, static_cast<int>(a.k), row, a.groupStride,
          a.buffers + Part::firstBuffer, choice};
}

template <class Part> __device__ Elements codesOf(const Arguments &a, long long row) {
  const long long pitch = a.pitch[Part::index];
  return {a.buffers[Part::firstBuffer] + row * pitch, static_cast<int>(pitch), nullptr, 0};
}

// The gemm behind may start: it waits for this kernel's end before it reads codes.
__device__ inline void launchDependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// What depends on all rows, found before it is used: m CTAs measure a row each, of which the last
// decides, and m others wait for that and store a row each. They take turns as they start, so that
// who waits only waits for CTAs that run. With m CTAs in all it is decided already.

// In memory: counters of CTAs, which are all 0 between launches, and 64 bytes on what is measured.
struct Counters {
  unsigned started, measured, decided, stored;
};

// Whether this CTA is the last of `all` to come.
__device__ inline bool isLast(unsigned *counter, long long all) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1u) + 1 == all;
    __threadfence();
  }
  __syncthreads();
  return last;
}

template <class Scratch> __device__ void quantizeInTwo(const Arguments &a) {
  const Scratch scratch(a);
  auto *const counters = reinterpret_cast<Counters *>(a.scratch);
  const bool decided = gridDim.x == a.m;
  __shared__ unsigned turn;
  if (threadIdx.x == 0)
    turn = decided ? blockIdx.x + a.m : atomicAdd(&counters->started, 1u);
  __syncthreads();
  if (turn < a.m) {
    measure(a, scratch, turn);
    if (isLast(&counters->measured, a.m)) {
      decide(a, scratch);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0)
        atomicExch(&counters->decided, 1u);
    }
    return;
  }
  if (!decided) {
    if (threadIdx.x == 0) {
      while (*static_cast<volatile unsigned *>(&counters->decided) == 0)
        ;
      __threadfence();
    }
    __syncthreads();
  }
  store(a, scratch, turn - a.m);
  if (!decided && isLast(&counters->stored, a.m) && threadIdx.x == 0)
    *counters = {0, 0, 0, 0};
}

#ifdef RHO_TENSOR
// --- components per tensor

// Behind the counters: for each reduction of their rules a number for each row.
struct Scratch {
  double *terms;
  long long rows;
  __device__ explicit Scratch(const Arguments &a)
      : terms(reinterpret_cast<double *>(a.scratch + 64)), rows(a.m) {}
};

template <int Index>
__device__ void reduceRow(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Reductions::size) {
    const auto row = rowOf<Only>(a, index, nullptr);
    const Team<decltype(row), threads> team(row, 0, row.k, static_cast<int>(threadIdx.x));
    const double reduced = Get<Index, Reductions>::value(team);
    if (threadIdx.x == 0)
      scratch.terms[Index * scratch.rows + index] = reduced;
    reduceRow<Index + 1>(a, scratch, index);
  }
}

// Of each reduction what all rows give, in its first row.
template <int Index> __device__ void combineRows(const Scratch &scratch) {
  if constexpr (Index < Reductions::size) {
    using Operation = typename Get<Index, Reductions>::Operation;
    double *const terms = scratch.terms + Index * scratch.rows;
    double *const partial = exchange().errors;
    double all = terms[0];
    for (long long row = threadIdx.x; row < scratch.rows; row += threads)
      all = combine<Operation>(all, terms[row]);
    __syncthreads(); // the last reduction's are read
    partial[threadIdx.x] = all;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < threads; ++i)
        all = combine<Operation>(all, partial[i]);
      terms[0] = all;
    }
    combineRows<Index + 1>(scratch);
  }
}

template <int Index> __device__ void storeComponents(const Arguments &a, const Scratch &scratch) {
  if constexpr (Index < Only::OfTensor::size) {
    using Component = Get<Index, Only::OfTensor>;
    const auto row = rowOf<Only>(a, 0, nullptr);
    const double value = Component::value(
        [&](int reduction) { return scratch.terms[reduction * scratch.rows] + 0.0; }, row);
    if ((a.given >> Component::index & 1) == 0)
      row.template store<Component>(0, Component::Type::encode(value));
    storeComponents<Index + 1>(a, scratch);
  }
}

__device__ inline void measure(const Arguments &a, const Scratch &scratch, long long row) {
  reduceRow<0>(a, scratch, row);
}
__device__ inline void decide(const Arguments &a, const Scratch &scratch) {
  combineRows<0>(scratch);
  if (threadIdx.x == 0)
    storeComponents<0>(a, scratch);
}
__device__ inline void store(const Arguments &a, const Scratch &, long long row) {
  encodeRow<0>(rowOf<Only>(a, row, nullptr), codesOf<Only>(a, row));
}
#endif

#ifdef RHO_PARTITION
// --- blocks of k in several parts

// Behind the counters: the part of each block; a number for each block; for each part and then each
// reduction of rules a number for each row and block; codes of components that rows have and blocks
// are measured with, in 4 bytes each.
struct Scratch {
  int *choice;
  double *gains, *terms;
  int blocks;
  long long rows, groupStride;
  __device__ explicit Scratch(const Arguments &a)
      : choice(reinterpret_cast<int *>(a.scratch + 64)),
        blocks((static_cast<int>(a.k) + Partition::block - 1) / Partition::block), rows(a.m),
        groupStride(a.groupStride) {
    gains = reinterpret_cast<double *>(choice + (blocks + 1) / 2 * 2);
    terms = gains + blocks;
  }
  __device__ double *term(int index, long long row) const {
    return terms + (index * rows + row) * blocks;
  }
  __device__ unsigned char *kept(int index) const {
    return reinterpret_cast<unsigned char *>(term(Partition::Parts::size + Reductions::size, 0)) +
           index * ((blocks + 7) / 8 * 8 * groupStride * 4);
  }
};

// Where the codes of a part's components go while it is measured.
template <class Part, int Index = 0>
__device__ void keepCodes(const Scratch &scratch, unsigned char **buffers) {
  if constexpr (Index < Part::Order::size) {
    using Component = Get<Index, typename Part::Order>;
    if constexpr (Component::kept >= 0 && Component::buffer == Component::index)
      buffers[Component::buffer] = scratch.kept(Component::kept);
    keepCodes<Part, Index + 1>(scratch, buffers);
  }
}

// What each part would make of a row's blocks, each alone.
template <int Index>
__device__ void measureParts(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Partition::Measured::size) {
    using Part = Get<Index, Partition::Measured>;
    unsigned char *buffers[Part::components];
#pragma unroll
    for (int i = 0; i < Part::components; ++i)
      buffers[i] = a.buffers[Part::firstBuffer + i];
    keepCodes<Part>(scratch, buffers);
    Row<Part> row = rowOf<Part>(a, index, nullptr);
    row.buffers = buffers;
    encodeRow<0>(row, Elements{nullptr, 0, scratch.term(Index, index), Partition::block});
    measureParts<Index + 1>(a, scratch, index);
  }
}

// What each part has of a row.
template <int Index>
__device__ void storeParts(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Partition::Parts::size) {
    using Part = Get<Index, Partition::Parts>;
    encodeRow<0>(rowOf<Part>(a, index, scratch.choice), codesOf<Part>(a, index));
    storeParts<Index + 1>(a, scratch, index);
  }
}

// What rules compare, of each block of a row.
template <int Index>
__device__ void reduceBlocks(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Reductions::size) {
    const auto row = rowOf<Get<0, Partition::Parts>>(a, index, nullptr);
    using Reduction = Get<Index, Reductions>;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < scratch.blocks; i += threads) {
      const int begin = i * Partition::block;
      Team<decltype(row), 1> team(row, begin, min(begin + Partition::block, row.k), 0);
      scratch.term(Partition::Parts::size + Index, index)[i] = Reduction::value(team);
    }
    reduceBlocks<Index + 1>(a, scratch, index);
  }
}

// Of each block what all rows make of a term, in its first row.
template <class Combine>
__device__ void combineRows(const Scratch &scratch, int term, const Combine &combine) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < scratch.blocks; i += threads) {
    double all = scratch.term(term, 0)[i];
    for (long long row = 1; row < scratch.rows; ++row)
      all = combine(all, scratch.term(term, row)[i]);
    scratch.term(term, 0)[i] = all;
  }
}
template <int Index> __device__ void combineReductions(const Scratch &scratch) {
  if constexpr (Index < Reductions::size) {
    using Operation = typename Get<Index, Reductions>::Operation;
    combineRows(scratch, Partition::Parts::size + Index,
                [](double a, double b) { return combine<Operation>(a, b); });
    combineReductions<Index + 1>(scratch);
  }
}

// The blocks that a part takes from those before it, as dsl/Quantize.h says. The errors of the
// parts that have the blocks are in those of part 0.
template <int Index> __device__ void takeBlocks(const Arguments &a, const Scratch &scratch) {
  if constexpr (Index < Partition::Parts::size) {
    using Part = Get<Index, Partition::Parts>;
    double *const current = scratch.term(0, 0), *const own = scratch.term(Index, 0);
    const double none = bitsToDouble(0x7ff8000000000000ull);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < scratch.blocks; i += threads) {
      const double gain = current[i] - own[i];
      const bool takes = Part::hasRule ? Part::holds([&](int reduction) {
        return scratch.term(Partition::Parts::size + reduction, 0)[i] + 0.0;
      })
                                       : gain > 0;
      const double key = gain == gain ? gain : bitsToDouble(0xfff0000000000000ull);
      scratch.gains[i] = takes ? key : none;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < scratch.blocks; i += threads) {
      const double gain = scratch.gains[i];
      if (gain != gain)
        continue;
      int before = 0;
      if (Part::hasBudget)
        for (int other = 0; other < scratch.blocks; ++other) {
          const double its = scratch.gains[other];
          before += its > gain || (its == gain && other < i) ? 1 : 0;
        }
      if (before < a.most[Index]) {
        scratch.choice[i] = Index;
        current[i] = own[i];
      }
    }
    __syncthreads();
    takeBlocks<Index + 1>(a, scratch);
  }
}

// Where each part's list of k tiles begins and ends, and the lists.
__device__ inline void listTiles(const Arguments &a, const Scratch &scratch) {
  const int tileK = static_cast<int>(a.tileK), tiles = (static_cast<int>(a.k) + tileK - 1) / tileK,
            perBlock = Partition::block / tileK;
  constexpr int parts = Partition::Parts::size;
  auto tilesOf = [&](int block) { return min(perBlock, tiles - block * perBlock); };
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tiles; i += threads) {
    const int block = i / perBlock, part = scratch.choice[block];
    int before = i % perBlock;
    for (int other = 0; other < scratch.blocks; ++other) {
      const int its = scratch.choice[other];
      before += its < part || (its == part && other < block) ? tilesOf(other) : 0;
    }
    a.tiles[parts + 1 + before] = i;
  }
  if (threadIdx.x <= parts) {
    int before = 0;
    for (int other = 0; other < scratch.blocks; ++other)
      before += scratch.choice[other] < static_cast<int>(threadIdx.x) ? tilesOf(other) : 0;
    a.tiles[threadIdx.x] = before;
  }
}

// By all rows' terms.
__device__ inline void decide(const Arguments &a, const Scratch &scratch) {
#pragma unroll 1
  for (int part = 0; part < Partition::Parts::size; ++part)
    combineRows(scratch, part, [](double sum, double more) { return sum + more; });
  combineReductions<0>(scratch);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < scratch.blocks; i += threads)
    scratch.choice[i] = 0;
  __syncthreads();
  takeBlocks<1>(a, scratch);
  listTiles(a, scratch);
}

__device__ inline void measure(const Arguments &a, const Scratch &scratch, long long row) {
  measureParts<0>(a, scratch, row);
  reduceBlocks<0>(a, scratch, row);
}
__device__ inline void store(const Arguments &a, const Scratch &scratch, long long row) {
  storeParts<0>(a, scratch, row);
}
#endif

__device__ inline void quantize(const Arguments &a) {
#if defined(RHO_PARTITION) || defined(RHO_TENSOR)
  quantizeInTwo<Scratch>(a);
#else
  encodeRow<0>(rowOf<Only>(a, blockIdx.x, nullptr), codesOf<Only>(a, blockIdx.x));
#endif
}

extern "C" __global__ void __launch_bounds__(threads) rho_quantize(const Arguments arguments) {
  launchDependents();
  quantize(arguments);
}
