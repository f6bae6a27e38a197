// Quantizes activations: x [m][k] in f32, f16 or bf16 -> codes of a format, in one launch. One CTA
// a row; where parts of the format share the blocks of k, two.
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

// --- codes to memory

// A code as it is stored: in StoredBits bits.
template <int StoredBits, class Type> __device__ unsigned widened(Type, unsigned code) {
  return code;
}
template <int StoredBits, int Bits>
__device__ unsigned widened(Integer<Bits, true>, unsigned code) {
  constexpr unsigned signBit = 1u << (Bits - 1), mask = (1u << (StoredBits - 1) << 1) - 1;
  return ((code ^ signBit) - signBit) & mask;
}

// A thread makes the codes of `chunk` places in memory, of which column Part::columnOf(place) has
// each.
template <class Row>
__device__ void storeElements(const Row &row, long long pitch, unsigned char *codes) {
  using Part = typename Row::Part;
  constexpr int bits = Part::elementBits;
  constexpr int words = chunk * bits / 32;
  constexpr bool within = Part::placeRun <= chunk; // places change within a chunk
  unsigned *out = reinterpret_cast<unsigned *>(codes + row.row * pitch);
  const long long chunks = (pitch + words * 4 - 1) / (words * 4); // the last may be cut short
  for (long long at = threadIdx.x; at < chunks; at += threads) {
    const long long place = at * chunk,
                    column = within ? place : place / Part::placeRun * Part::placeRun;
    float x[chunk];
    unsigned valid = 0;
    if constexpr (within) {
      row.load(column, row.k, x);
      valid = validBits(column, row.k);
    } else {
#pragma unroll
      for (int j = 0; j < chunk; ++j) {
        x[j] = row.number(Part::columnOf(place + j));
        valid |= Part::columnOf(place + j) < row.k ? 1u << j : 0u;
      }
    }
    const Codes found = encodeChunk(row, column, valid, x);
    unsigned packed[words] = {};
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      const int from = within ? static_cast<int>(Part::columnOf(j)) : j;
      const unsigned code =
          valid >> from & 1 ? widened<bits>(typename Part::Element(), found.codes[from]) : 0u;
      packed[j * bits / 32] |= code << (j * bits % 32);
    }
#pragma unroll
    for (int i = 0; i < words; ++i)
      if ((at * words + i) * 4 < pitch)
        out[at * words + i] = packed[i];
  }
}

// As quantizerLaunch() in runtime/QuantizerSource.cpp has it.
struct Arguments {
  const void *x;
  long long stride, m, k, groupStride;
  long long tileK;        // of a partition: of the gemm's k tiles
  int *tiles;             // which part has which of them
  unsigned char *scratch; // see Scratch
  long long choiceGiven;  // whether the scratch says which part has which block
  long long pitch[partCount];
  unsigned char *buffers[bufferCount];
};

template <class Part, class Input>
__device__ Row<Part, Input> rowOf(const Arguments &a, long long row, const int *choice) {
  return {static_cast<const Input *>(a.x) + row * a.stride,
          a.k,
          row,
          a.groupStride,
          a.buffers + Part::firstBuffer,
          choice};
}

template <class Part, class Input>
__device__ void quantizeRow(const Arguments &a, long long index, const int *choice) {
  const Row<Part, Input> row = rowOf<Part, Input>(a, index, choice);
  encodeComponents<0>(row);
  storeElements(row, a.pitch[Part::index], a.buffers[Part::firstBuffer]);
}

// The gemm behind may start: it waits for this kernel's end before it reads codes.
__device__ inline void launchDependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#ifdef RHO_PARTITION
// --- blocks of k in several parts

// In memory: counters of CTAs, which are all 0 between launches; the part of each block; a number
// for each block; for each part and then each reduction of rules a number for each row and block.
struct Scratch {
  unsigned *counters; // CTAs started, rows measured, choice made, rows stored
  int *choice;
  double *gains, *terms;
  long long blocks, rows;
  __device__ explicit Scratch(const Arguments &a)
      : counters(reinterpret_cast<unsigned *>(a.scratch)),
        choice(reinterpret_cast<int *>(a.scratch + 64)),
        blocks((a.k + Partition::block - 1) / Partition::block), rows(a.m) {
    gains = reinterpret_cast<double *>(choice + (blocks + 1) / 2 * 2);
    terms = gains + blocks;
  }
  __device__ double *term(int index, long long row) const {
    return terms + (index * rows + row) * blocks;
  }
};

template <int Index, class Input>
__device__ void measureParts(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Partition::Parts::size) {
    auto row = rowOf<Get<Index, Partition::Parts>, Input>(a, index, nullptr);
    encodeComponents<0>(row);
    sumErrors(row, Partition::block, scratch.term(Index, index));
    measureParts<Index + 1, Input>(a, scratch, index);
  }
}

template <int Index, class Input>
__device__ void quantizeParts(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Partition::Parts::size) {
    quantizeRow<Get<Index, Partition::Parts>, Input>(a, index, scratch.choice);
    quantizeParts<Index + 1, Input>(a, scratch, index);
  }
}

// What rules compare, of each block of a row.
template <int Index, class Input>
__device__ void reduceBlocks(const Arguments &a, const Scratch &scratch, long long index) {
  if constexpr (Index < Partition::Reductions::size) {
    auto row = rowOf<Get<0, Partition::Parts>, Input>(a, index, nullptr);
    using Reduction = Get<Index, Partition::Reductions>;
    for (long long i = threadIdx.x; i < scratch.blocks; i += threads) {
      const long long begin = i * Partition::block;
      Team<decltype(row), 1> team(row, begin, min(begin + Partition::block, a.k), 0);
      scratch.term(Partition::Parts::size + Index, index)[i] = Reduction::value(team);
    }
    reduceBlocks<Index + 1, Input>(a, scratch, index);
  }
}

// Of each block what all rows make of a term, in its first row.
template <class Combine>
__device__ void combineRows(const Scratch &scratch, int term, const Combine &combine) {
  for (long long i = threadIdx.x; i < scratch.blocks; i += threads) {
    double all = scratch.term(term, 0)[i];
    for (long long row = 1; row < scratch.rows; ++row)
      all = combine(all, scratch.term(term, row)[i]);
    scratch.term(term, 0)[i] = all;
  }
}
template <int Index> __device__ void combineReductions(const Scratch &scratch) {
  if constexpr (Index < Partition::Reductions::size) {
    using Operation = typename Get<Index, Partition::Reductions>::Operation;
    combineRows(scratch, Partition::Parts::size + Index,
                [](double a, double b) { return combine<Operation>(a, b); });
    combineReductions<Index + 1>(scratch);
  }
}

// The blocks that a part takes from those before it, as dsl/Quantize.h says. The errors of the
// parts that have the blocks are in those of part 0.
template <int Index> __device__ void takeBlocks(const Scratch &scratch) {
  if constexpr (Index < Partition::Parts::size) {
    using Part = Get<Index, Partition::Parts>;
    double *const current = scratch.term(0, 0), *const own = scratch.term(Index, 0);
    const double none = bitsToDouble(0x7ff8000000000000ull);
    for (long long i = threadIdx.x; i < scratch.blocks; i += threads) {
      const double gain = current[i] - own[i];
      const bool takes = Part::hasRule ? Part::holds([&](int reduction) {
        return scratch.term(Partition::Parts::size + reduction, 0)[i] + 0.0;
      })
                                       : gain > 0;
      const double key = gain == gain ? gain : bitsToDouble(0xfff0000000000000ull);
      scratch.gains[i] = takes ? key : none;
    }
    __syncthreads();
    const double most = floor(Part::budget * static_cast<double>(scratch.blocks) / 100);
    for (long long i = threadIdx.x; i < scratch.blocks; i += threads) {
      const double gain = scratch.gains[i];
      if (gain != gain)
        continue;
      long long before = 0;
      if (Part::budget >= 0)
        for (long long other = 0; other < scratch.blocks; ++other) {
          const double its = scratch.gains[other];
          before += its > gain || (its == gain && other < i) ? 1 : 0;
        }
      if (Part::budget < 0 || static_cast<double>(before) < most) {
        scratch.choice[i] = Index;
        current[i] = own[i];
      }
    }
    __syncthreads();
    takeBlocks<Index + 1>(scratch);
  }
}

// Where each part's list of k tiles begins and ends, and the lists.
__device__ inline void listTiles(const Arguments &a, const Scratch &scratch) {
  const long long tiles = (a.k + a.tileK - 1) / a.tileK, perBlock = Partition::block / a.tileK;
  constexpr int parts = Partition::Parts::size;
  auto partOf = [&](long long tile) { return scratch.choice[tile / perBlock]; };
  for (long long i = threadIdx.x; i < tiles; i += threads) {
    const int part = partOf(i);
    int before = 0;
    for (long long other = 0; other < tiles; ++other)
      before += partOf(other) < part || (partOf(other) == part && other < i) ? 1 : 0;
    a.tiles[parts + 1 + before] = static_cast<int>(i);
  }
  if (threadIdx.x <= parts) {
    int before = 0;
    for (long long other = 0; other < tiles; ++other)
      before += partOf(other) < static_cast<int>(threadIdx.x) ? 1 : 0;
    a.tiles[threadIdx.x] = before;
  }
}

// By all rows' terms.
__device__ inline void chooseParts(const Arguments &a, const Scratch &scratch) {
  for (int part = 0; part < Partition::Parts::size; ++part)
    combineRows(scratch, part, [](double sum, double more) { return sum + more; });
  combineReductions<0>(scratch);
  for (long long i = threadIdx.x; i < scratch.blocks; i += threads)
    scratch.choice[i] = 0;
  __syncthreads();
  takeBlocks<1>(scratch);
  listTiles(a, scratch);
}

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

// m CTAs measure a row each, of which the last chooses, and m others wait for that and store a row
// each. They take turns as they start, so that who waits only waits for CTAs that run.
template <class Input> __device__ void quantize(const Arguments &a) {
  const Scratch scratch(a);
  if (a.choiceGiven)
    return quantizeParts<0, Input>(a, scratch, blockIdx.x);
  unsigned *const started = scratch.counters, *const measured = started + 1,
                  *const chosen = started + 2, *const stored = started + 3;
  __shared__ unsigned turn;
  if (threadIdx.x == 0)
    turn = atomicAdd(started, 1u);
  __syncthreads();
  if (turn < a.m) {
    measureParts<0, Input>(a, scratch, turn);
    reduceBlocks<0, Input>(a, scratch, turn);
    if (isLast(measured, a.m)) {
      chooseParts(a, scratch);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0)
        atomicExch(chosen, 1u);
    }
    return;
  }
  if (threadIdx.x == 0) {
    while (*static_cast<volatile unsigned *>(chosen) == 0)
      ;
    __threadfence();
  }
  __syncthreads();
  quantizeParts<0, Input>(a, scratch, turn - a.m);
  if (isLast(stored, a.m) && threadIdx.x < 4)
    scratch.counters[threadIdx.x] = 0;
}
#else
template <class Input> __device__ void quantize(const Arguments &a) {
  quantizeRow<Only, Input>(a, blockIdx.x, nullptr);
}
#endif

#define RHO_QUANTIZE(name, Input)                                                                  \
  extern "C" __global__ void __launch_bounds__(threads) name(const Arguments arguments) {          \
    launchDependents();                                                                            \
    quantize<Input>(arguments);                                                                    \
  }
RHO_QUANTIZE(rho_quantize_f32, float)
RHO_QUANTIZE(rho_quantize_f16, InputF16)
RHO_QUANTIZE(rho_quantize_bf16, InputBf16)
