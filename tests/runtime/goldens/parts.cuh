#define RHO_PARTITION
namespace part0 {
struct C1 { // f16 per k[64]
  using Type = f16;
  using Unit = unsigned short;
  static constexpr int index = 1;
  static constexpr int position = 0;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 64;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 1;
  struct Rule {
    double r0;
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
      r0 = team.absmax();
    }
    __device__ double value(int candidate) const {
      return divide(r0, 7.0);
    }
  };
};
struct Part {
  using Element = s4;
  using Order = List<C1>;
  using OfTensor = List<>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 2;
  static constexpr int elementBits = 4;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 64;
  static constexpr int placeRun = 1;
  static constexpr __device__ int columnOf(int place) { return place; }
  static constexpr Value valueForm = Value::Product;
  struct Scales { double c1; };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {values.template read<C1>(column)};
  }
  static __device__ double product(const Scales &scales) { return scales.c1; }
  static __device__ double value(const Scales &scales, double element) { return (element * scales.c1); }
  static __device__ double special(const Scales &scales) { return 0.0; }
  static constexpr bool storesNumbers = false;
  using Number = s4;
  static __device__ double number(const Scales &scales, double element) { return element; }
  static constexpr bool hasBudget = false;
  static constexpr bool hasRule = false;
  template <class Reduced> static __device__ bool holds(const Reduced &reduced) {
    return true;
  }
};
} // namespace part0
namespace part1 {
struct C1 { // f32 per token
  using Type = f32;
  using Unit = unsigned int;
  static constexpr int index = 1;
  static constexpr int position = 0;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 0;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 1;
  struct Rule {
    double r0;
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
      r0 = team.absmax();
    }
    __device__ double value(int candidate) const {
      return divide(r0, 127.0);
    }
  };
};
struct Part {
  using Element = s8;
  using Order = List<C1>;
  using OfTensor = List<>;
  static constexpr int index = 1;
  static constexpr int firstBuffer = 2;
  static constexpr int components = 2;
  static constexpr int elementBits = 8;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 64;
  static constexpr int placeRun = 64;
  static constexpr __device__ int columnOf(int place) { return place >> 6 << 6 | (place >> 0 & 1) << 5 | (place >> 1 & 1) << 0 | (place >> 2 & 1) << 1 | (place >> 3 & 1) << 2 | (place >> 4 & 1) << 3 | (place >> 5 & 1) << 4; }
  static constexpr Value valueForm = Value::Product;
  struct Scales { double c1; };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {values.template read<C1>(column)};
  }
  static __device__ double product(const Scales &scales) { return scales.c1; }
  static __device__ double value(const Scales &scales, double element) { return (element * scales.c1); }
  static __device__ double special(const Scales &scales) { return 0.0; }
  static constexpr bool storesNumbers = false;
  using Number = s8;
  static __device__ double number(const Scales &scales, double element) { return element; }
  static constexpr bool hasBudget = false;
  static constexpr bool hasRule = true;
  template <class Reduced> static __device__ bool holds(const Reduced &reduced) {
    return reduced(0) >= 2.0;
  }
};
} // namespace part1
namespace part2 {
struct Part {
  using Element = bf16;
  using Order = List<>;
  using OfTensor = List<>;
  static constexpr int index = 2;
  static constexpr int firstBuffer = 4;
  static constexpr int components = 1;
  static constexpr int elementBits = 16;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 64;
  static constexpr int placeRun = 1;
  static constexpr __device__ int columnOf(int place) { return place; }
  static constexpr Value valueForm = Value::Product;
  struct Scales { };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {};
  }
  static __device__ double product(const Scales &scales) { return 1.0; }
  static __device__ double value(const Scales &scales, double element) { return element; }
  static __device__ double special(const Scales &scales) { return 0.0; }
  static constexpr bool storesNumbers = false;
  using Number = bf16;
  static __device__ double number(const Scales &scales, double element) { return element; }
  static constexpr bool hasBudget = true;
  static constexpr bool hasRule = true;
  template <class Reduced> static __device__ bool holds(const Reduced &reduced) {
    return (reduced(1) - reduced(2)) >= 5.0;
  }
};
} // namespace part2
struct Reduction0 {
  using Operation = Absmax;
  template <class Team> static __device__ double value(const Team &team) { return team.absmax(); }
};
struct Reduction1 {
  using Operation = Max;
  template <class Team> static __device__ double value(const Team &team) { return team.template reduce<Max>([](float x) { return x; }); }
};
struct Reduction2 {
  using Operation = Min;
  template <class Team> static __device__ double value(const Team &team) { return team.template reduce<Min>([](float x) { return x; }); }
};
using Reductions = List<Reduction0, Reduction1, Reduction2>;
struct Partition {
  using Parts = List<part0::Part, part1::Part, part2::Part>;
  using Measured = List<part0::Part, part1::Part, part2::Part>;
  static constexpr int block = 64;
};
constexpr int partCount = 3, bufferCount = 5;
