// A row of numbers and its components in memory, and what threads reduce of it. Part of
// quantize_activations.cu.

// --- lists of types

template <class... Types> struct List {
  static constexpr int size = sizeof...(Types);
};
template <int Index, class Types> struct At;
template <int Index, class First, class... Rest>
struct At<Index, List<First, Rest...>> : At<Index - 1, List<Rest...>> {};
template <class First, class... Rest> struct At<0, List<First, Rest...>> {
  using type = First;
};
template <int Index, class Types> using Get = typename At<Index, Types>::type;

// --- one row in one part of the format

template <class OfPart> struct Row {
  using Part = OfPart;
  const unsigned char *x;
  Input input;
  int width; // of a number, in bytes
  int k;
  long long row, groupStride;
  unsigned char *const *buffers; // of the part's components
  const int *choice;             // or null; numbers of blocks in other parts are 0

  __device__ bool isMasked(int column) const {
    if constexpr (Part::block != 0)
      return choice && choice[column / Part::block] != Part::index;
    return false;
  }
  __device__ const unsigned char *at(int column) const {
    return x + static_cast<long long>(column) * width;
  }
  // Bits of the number of `column`, as those of a float; f16 in the upper half.
  __device__ unsigned bitsAt(int column) const {
    const auto *halves = reinterpret_cast<const unsigned short *>(at(column));
    const unsigned low = width == 4 ? 0xffffu : 0;
    return halves[width / 2 - 1] << 16 | (halves[0] & low);
  }
  // chunk numbers from `column` on, of one block; those at `end` and after are 0.
  __device__ void load(int column, int end, float (&out)[chunk]) const {
    const auto *vectors = reinterpret_cast<const uint4 *>(at(column));
    unsigned bits[chunk];
    if (column < end && isMasked(column))
      end = column;
    if (column + chunk <= end && reinterpret_cast<unsigned long long>(vectors) % 16 == 0) {
      const uint4 first = vectors[0];
      const unsigned words[] = {first.x, first.y, first.z, first.w};
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        bits[j] = j % 2 == 0 ? words[j / 2] << 16 : words[j / 2] & 0xffff0000u;
      if (width == 4) {
        const uint4 second = vectors[1];
        bits[0] = first.x, bits[1] = first.y, bits[2] = first.z, bits[3] = first.w;
        bits[4] = second.x, bits[5] = second.y, bits[6] = second.z, bits[7] = second.w;
      }
    } else { // rare, hence one by one; an index that varies would keep bits out of registers
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        bits[j] = 0;
#pragma unroll 1
      for (int from = min(column + chunk, end) - 1; from >= column; --from) {
#pragma unroll
        for (int j = chunk - 1; j > 0; --j)
          bits[j] = bits[j - 1];
        bits[0] = bitsAt(from);
      }
    }
    if (input == Input::F16) {
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        out[j] = halfToFloat(bits[j] >> 16);
    } else {
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        out[j] = __uint_as_float(bits[j]);
    }
  }

  // The unit that has the code of a component for `column`.
  template <class Component> __device__ typename Component::Unit &unit(int column) const {
    long long at = Component::ofTensor ? 0 : row;
    if constexpr (Component::group != 0) {
      constexpr int w = Part::groupsPerWord;
      const int group = column / Component::group;
      at = (group / w * groupStride + row) * w + group % w;
    }
    return reinterpret_cast<typename Component::Unit *>(buffers[Component::buffer])[at];
  }
  template <class Component> __device__ double read(int column) const {
    return Component::Type::decode(unit<Component>(column) >> Component::shift);
  }
  // Components in spare bits are stored after their host.
  template <class Component> __device__ void store(int column, unsigned code) const {
    using Unit = typename Component::Unit;
    Unit &to = unit<Component>(column);
    constexpr unsigned mask = (1u << (Component::Type::bits - 1) << 1) - 1;
    to = Component::shift == 0
             ? static_cast<Unit>(code)
             : static_cast<Unit>((to & ~(mask << Component::shift)) | code << Component::shift);
  }
};

// --- reductions: NaN wins, so that no input hides it

struct Absmax {
  static constexpr bool ofMagnitude = true;
  template <class R> static __device__ R start() { return 0; }
  template <class R> static __device__ R prepare(R x) { return x < 0 ? -x : x; }
  template <class R> static __device__ bool better(R a, R b) { return a > b; }
};
struct Min {
  static constexpr bool ofMagnitude = false;
  template <class R> static __device__ R start() { return __int_as_float(0x7f800000); }
  template <class R> static __device__ R prepare(R x) { return x; }
  template <class R> static __device__ bool better(R a, R b) { return a < b; }
};
struct Max {
  static constexpr bool ofMagnitude = false;
  template <class R> static __device__ R start() { return __int_as_float(0xff800000); }
  template <class R> static __device__ R prepare(R x) { return x; }
  template <class R> static __device__ bool better(R a, R b) { return a > b; }
};
template <class Op, class R> __device__ R combine(R a, R b) {
  return b != b || Op::template better<R>(b, a) ? (a != a ? a : b) : a;
}

// What a function that divides makes of numbers with these extremes, or that largest magnitude, of
// all of them. Division and its rounding keep the order of numbers or turn it, so that the extremes
// of what it gives are those of the numbers.
template <class Op, class Function> __device__ double quotient(Function function, double largest) {
  return Op::prepare(function(largest)) + 0.0;
}
template <class Op, class Function>
__device__ double quotient(Function function, double least, double most) {
  return combine<Op>(function(least), function(most)) + 0.0;
}

// The largest magnitude of floats as unsigned integers: their bits are ordered as they are, with
// NaN above infinity.
__device__ inline unsigned magnitudeBits(float x) {
  return static_cast<unsigned>(__float_as_int(x)) & 0x7fffffffu;
}

// The threads that share one extent: `Lanes` of a warp, or the whole CTA for Lanes == threads.
template <class Row, int Lanes> class Team {
public:
  __device__ Team(const Row &row, int begin, int end, int lane)
      : row(row), begin(begin), end(end), lane(lane) {}
  const Row &row;
  const int begin, end; // columns
  const int lane;

  // Op over function(x) of all numbers of the extent.
  template <class Op, class Function> __device__ double reduce(Function function) const {
    using R = decltype(function(0.0f));
    R best = Op::template start<R>();
    visit([&](float x, bool counts) {
      const R more = combine<Op>(best, Op::template prepare<R>(function(x)));
      best = counts ? more : best;
    });
    best = share(best, [](R a, R b) { return combine<Op>(a, b); });
    return static_cast<double>(best) + 0.0; // never -0: which zero is found depends on the order
  }
  // The same of a function that divides.
  template <class Op, class Function> __device__ double reduceQuotients(Function function) const {
    if constexpr (Op::ofMagnitude)
      return quotient<Op>(function, absmax());
    auto number = [](float x) { return x; };
    return quotient<Op>(function, reduce<Min>(number), reduce<Max>(number));
  }
  // Absmax of the numbers themselves.
  __device__ double absmax() const {
    unsigned best = 0;
    visit([&](float x, bool) { best = max(best, magnitudeBits(x)); }); // past the end are zeros
    best = share(best, [](unsigned a, unsigned b) { return max(a, b); });
    return static_cast<double>(__uint_as_float(best));
  }

private:
  template <class Visitor> __device__ void visit(Visitor visitor) const {
#pragma unroll 1
    for (int column = begin + lane * chunk; column < end; column += Lanes * chunk) {
      float x[chunk];
      row.load(column, end, x);
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        visitor(x[j], column + j < end);
    }
  }

  // All threads' results as one, in all threads.
  template <class R, class Combine> __device__ R share(R best, Combine combine) const {
    constexpr int warps = threads / 32;
    auto ofLanes = [&](int lanes) {
      for (int distance = lanes / 2; distance > 0; distance /= 2)
        best = combine(best, __shfl_xor_sync(0xffffffffu, best, distance));
    };
    ofLanes(Lanes < 32 ? Lanes : 32);
    if (Lanes > 32) {
      __shared__ R partial[warps];
      __syncthreads(); // a previous reduction is read
      if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = best;
      __syncthreads();
      best = partial[threadIdx.x % warps];
      ofLanes(warps);
    }
    return best;
  }
};
