#define RHO_TENSOR
namespace part0 {
struct C2 { // f16 per tensor
  using Type = f16;
  using Unit = unsigned short;
  static constexpr int index = 2;
  static constexpr int position = -1;
  static constexpr int buffer = 2;
  static constexpr int shift = 0;
  static constexpr int group = 0;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = true;
  static constexpr int candidates = 1;
  template <class Reduced, class Values>
  static __device__ double value(const Reduced &reduced, const Values &values) {
    return divide(larger(reduced(0), (reduced(1) - reduced(2))), 2688.0);
  }
};
struct C3 { // f32 per tensor
  using Type = f32;
  using Unit = unsigned int;
  static constexpr int index = 3;
  static constexpr int position = -1;
  static constexpr int buffer = 3;
  static constexpr int shift = 0;
  static constexpr int group = 0;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = true;
  static constexpr int candidates = 1;
  template <class Reduced, class Values>
  static __device__ double value(const Reduced &reduced, const Values &values) {
    return 0.5;
  }
};
struct C1 { // ue4m3 per k[16]
  using Type = Float<7, 4, 3, 7, Special::NanOnly, 0x7eu, 0x7fu, false>;
  using Unit = unsigned char;
  static constexpr int index = 1;
  static constexpr int position = 0;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 16;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 2;
  struct Rule {
    double c3, c2, r0;
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
      c3 = values.template read<C3>(team.begin);
      c2 = values.template read<C2>(team.begin);
      r0 = team.template reduceQuotients<Absmax>([&](double x) { return divide(divide(x, c3), c2); });
    }
    __device__ double value(int candidate) const {
      if (candidate == 0)
        return divide(r0, 6.0);
      return divide(r0, 4.0);
    }
  };
};
struct Part {
  using Element = e2m1;
  using Order = List<C1>;
  using OfTensor = List<C2, C3>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 4;
  static constexpr int elementBits = 4;
  static constexpr int groupsPerWord = 4;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 0;
  static constexpr int placeRun = 1;
  static constexpr __device__ int columnOf(int place) { return place; }
  static constexpr Value valueForm = Value::Product;
  struct Scales { double c1, c2, c3; };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {values.template read<C1>(column), values.template read<C2>(column), values.template read<C3>(column)};
  }
  static __device__ double product(const Scales &scales) { return scales.c1 * scales.c2 * scales.c3; }
  static __device__ double value(const Scales &scales, double element) { return (((element * scales.c1) * scales.c2) * scales.c3); }
  static __device__ double special(const Scales &scales) { return 0.0; }
  static constexpr bool storesNumbers = false;
  using Number = e2m1;
  static __device__ double number(const Scales &scales, double element) { return element; }
};
} // namespace part0
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
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 4;
