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

template <class OfPart, class OfInput> struct Row {
  using Part = OfPart;
  using Input = OfInput;
  const Input *x;
  long long k;
  long long row;
  long long groupStride;
  unsigned char *const *buffers; // of the part's components
  const int *choice;             // or null; numbers of blocks in other parts are 0

  __device__ bool isMasked(long long column) const {
    if constexpr (Part::block != 0)
      return choice && choice[column / Part::block] != Part::index;
    return false;
  }
  // chunk numbers from `column` on, of one block; those at `end` and after are 0.
  __device__ void load(long long column, long long end, float (&out)[chunk]) const {
    const Input *from = x + column;
    if (column < end && isMasked(column))
      end = column;
    if (column + chunk <= end && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
      constexpr int perVector = 16 / sizeof(Input);
#pragma unroll
      for (int i = 0; i < chunk / perVector; ++i) {
        union {
          uint4 vector;
          Input numbers[perVector];
        } loaded;
        loaded.vector = reinterpret_cast<const uint4 *>(from)[i];
#pragma unroll
        for (int j = 0; j < perVector; ++j)
          out[i * perVector + j] = toFloat(loaded.numbers[j]);
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < chunk; ++j)
      out[j] = column + j < end ? toFloat(from[j]) : 0.0f;
  }
  __device__ float number(long long column) const {
    return column < k && !isMasked(column) ? toFloat(x[column]) : 0.0f;
  }

  // The unit that has the code of a component for `column`.
  template <class Component> __device__ typename Component::Unit &unit(long long column) const {
    long long at = row;
    if constexpr (Component::group != 0) {
      constexpr int w = Part::groupsPerWord;
      const long long group = column / Component::group;
      at = (group / w * groupStride + row) * w + group % w;
    }
    return reinterpret_cast<typename Component::Unit *>(buffers[Component::buffer])[at];
  }
  template <class Component> __device__ double read(long long column) const {
    return Component::Type::decode(unit<Component>(column) >> Component::shift);
  }
  // Components in spare bits are stored after their host.
  template <class Component> __device__ void store(long long column, unsigned code) const {
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
  template <class R> static __device__ R start() { return 0; }
  template <class R> static __device__ R prepare(R x) { return x < 0 ? -x : x; }
  template <class R> static __device__ bool better(R a, R b) { return a > b; }
};
struct Min {
  template <class R> static __device__ R start() { return __int_as_float(0x7f800000); }
  template <class R> static __device__ R prepare(R x) { return x; }
  template <class R> static __device__ bool better(R a, R b) { return a < b; }
};
struct Max {
  template <class R> static __device__ R start() { return __int_as_float(0xff800000); }
  template <class R> static __device__ R prepare(R x) { return x; }
  template <class R> static __device__ bool better(R a, R b) { return a > b; }
};
template <class Op, class R> __device__ R combine(R a, R b) {
  return b != b || Op::template better<R>(b, a) ? (a != a ? a : b) : a;
}

// The largest magnitude of floats as unsigned integers: their bits are ordered as they are, with
// NaN above infinity.
__device__ inline unsigned magnitudeBits(float x) {
  return static_cast<unsigned>(__float_as_int(x)) & 0x7fffffffu;
}

// The threads that share one extent: `Lanes` of a warp, or the whole CTA for Lanes == threads.
template <class Row, int Lanes> class Team {
public:
  __device__ Team(const Row &row, long long begin, long long end, int lane)
      : row(row), begin(begin), end(end), lane(lane) {}
  const Row &row;
  const long long begin, end; // columns
  const int lane;

  // Op over function(x) of all numbers of the extent.
  template <class Op, class Function> __device__ double reduce(Function function) const {
    using R = decltype(function(0.0f));
    R best = Op::template start<R>();
    visit([&](float x) { best = combine<Op>(best, Op::template prepare<R>(function(x))); });
    best = share(best, [](R a, R b) { return combine<Op>(a, b); });
    return static_cast<double>(best) + 0.0; // never -0: which zero is found depends on the order
  }
  // Absmax of the numbers themselves.
  __device__ double absmax() const {
    unsigned best = 0;
    visit([&](float x) { best = max(best, magnitudeBits(x)); });
    best = share(best, [](unsigned a, unsigned b) { return max(a, b); });
    return static_cast<double>(__uint_as_float(best));
  }

private:
  template <class Visitor> __device__ void visit(Visitor visitor) const {
    for (long long column = begin + lane * chunk; column < end; column += Lanes * chunk) {
      float x[chunk];
      row.load(column, end, x);
      if (column + chunk <= end) {
#pragma unroll
        for (int j = 0; j < chunk; ++j)
          visitor(x[j]);
      } else {
#pragma unroll
        for (int j = 0; j < chunk; ++j)
          if (column + j < end)
            visitor(x[j]);
      }
    }
  }

  // All threads' results as one, in all threads.
  template <class R, class Combine> __device__ R share(R best, Combine combine) const {
    constexpr int inWarp = Lanes < 32 ? Lanes : 32;
#pragma unroll
    for (int distance = inWarp / 2; distance > 0; distance /= 2)
      best = combine(best, __shfl_xor_sync(0xffffffffu, best, distance));
    if (Lanes > 32) {
      __shared__ R partial[threads / 32];
      __syncthreads(); // a previous reduction is read
      if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = best;
      __syncthreads();
      best = partial[0];
#pragma unroll
      for (int i = 1; i < threads / 32; ++i)
        best = combine(best, partial[i]);
    }
    return best;
  }
};
