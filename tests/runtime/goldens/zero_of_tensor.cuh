#define RHO_TENSOR
namespace part0 {
struct C1 { // f32 per tensor
  using Type = f32;
  using Unit = unsigned int;
  static constexpr int index = 1;
  static constexpr int position = -1;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 0;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = true;
  static constexpr int candidates = 1;
  template <class Reduced, class Values>
  static __device__ double value(const Reduced &reduced, const Values &values) {
    return divide((larger(reduced(0), 0.0) - smaller(reduced(1), 0.0)), 255.0);
  }
};
struct C2 { // u8 per tensor
  using Type = u8;
  using Unit = unsigned char;
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
    return (0.0 - smaller(quotient<Min>([&](double x) { return divide(x, values.template read<C1>(0)); }, reduced(1), reduced(0)), 0.0));
  }
};
struct Part {
  using Element = u8;
  using Order = List<>;
  using OfTensor = List<C1, C2>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 3;
  static constexpr int elementBits = 8;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 0;
  static constexpr int placeRun = 1;
  static constexpr __device__ int columnOf(int place) { return place; }
  static constexpr Value valueForm = Value::Line;
  struct Scales { double c1, c2; };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {values.template read<C1>(column), values.template read<C2>(column)};
  }
  static __device__ double product(const Scales &scales) { return scales.c1 * scales.c2; }
  static __device__ double value(const Scales &scales, double element) { return ((element - scales.c2) * scales.c1); }
  static __device__ double special(const Scales &scales) { return 0.0; }
  static constexpr bool storesNumbers = false;
  using Number = u8;
  static __device__ double number(const Scales &scales, double element) { return element; }
};
} // namespace part0
struct Reduction0 {
  using Operation = Max;
  template <class Team> static __device__ double value(const Team &team) { return team.template reduce<Max>([](float x) { return x; }); }
};
struct Reduction1 {
  using Operation = Min;
  template <class Team> static __device__ double value(const Team &team) { return team.template reduce<Min>([](float x) { return x; }); }
};
using Reductions = List<Reduction0, Reduction1>;
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 3;
