namespace part0 {
struct C2 { // f32 per k[48]
  using Type = f32;
  using Unit = unsigned int;
  static constexpr int index = 2;
  static constexpr int position = 0;
  static constexpr int buffer = 2;
  static constexpr int shift = 0;
  static constexpr int group = 48;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 1;
  struct Rule {
    double r0, r1, r2;
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
      r0 = team.template reduce<Max>([](float x) { return x; });
      r1 = team.template reduce<Min>([](float x) { return x; });
      r2 = team.absmax();
    }
    __device__ double value(int candidate) const {
      return (divide((r0 - (r1 * 2.0)), 0.1) + (-f16::decode(f16::encode(r2))));
    }
  };
};
struct C1 { // e4m3 per k[24]
  using Type = e4m3;
  using Unit = unsigned char;
  static constexpr int index = 1;
  static constexpr int position = 1;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 24;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 1;
  struct Rule {
    double c2, r0;
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
      c2 = values.template read<C2>(team.begin);
      r0 = team.template reduce<Absmax>([&](double x) { return (divide(x, c2) + 1.0); });
    }
    __device__ double value(int candidate) const {
      return divide(r0, 6.0);
    }
  };
};
struct Part {
  using Element = e2m1;
  using Order = List<C2, C1>;
  using OfTensor = List<>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 3;
  static constexpr int elementBits = 4;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 0;
  static constexpr int placeRun = 1;
  static constexpr __device__ int columnOf(int place) { return place; }
  static constexpr Value valueForm = Value::Product;
  struct Scales { double c1, c2; };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {values.template read<C1>(column), values.template read<C2>(column)};
  }
  static __device__ double product(const Scales &scales) { return scales.c1 * scales.c2; }
  static __device__ double value(const Scales &scales, double element) { return ((element * scales.c1) * scales.c2); }
  static __device__ double special(const Scales &scales) { return 0.0; }
  static constexpr bool storesNumbers = false;
  using Number = e2m1;
  static __device__ double number(const Scales &scales, double element) { return element; }
};
} // namespace part0
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 3;
