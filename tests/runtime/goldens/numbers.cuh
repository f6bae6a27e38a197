namespace part0 {
struct C3 { // f32 per token
  using Type = f32;
  using Unit = unsigned int;
  static constexpr int index = 3;
  static constexpr int position = 0;
  static constexpr int buffer = 3;
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
      return divide(divide(r0, 6.0), 448.0);
    }
  };
};
struct C1 { // ue4m3 per k[16]
  using Type = Float<7, 4, 3, 7, Special::NanOnly, 0x7eu, 0x7fu, false>;
  using Unit = unsigned char;
  static constexpr int index = 1;
  static constexpr int position = 1;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 16;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 1;
  struct Rule {
    double c3, r0;
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
      c3 = values.template read<C3>(team.begin);
      r0 = team.template reduceQuotients<Absmax>([&](double x) { return divide(x, c3); });
    }
    __device__ double value(int candidate) const {
      return divide(r0, 6.0);
    }
  };
};
struct C2 { // u1 per k[16]
  using Type = u1;
  using Unit = unsigned char;
  static constexpr int index = 2;
  static constexpr int position = 2;
  static constexpr int buffer = 1;
  static constexpr int shift = 7;
  static constexpr int group = 16;
  static constexpr int kept = -1;
  static constexpr bool ofTensor = false;
  static constexpr int candidates = 2;
  struct Rule {
    template <class Values, class Team>
    __device__ Rule(const Values &values, const Team &team) {
    }
    __device__ double value(int candidate) const {
      if (candidate == 0)
        return 0.0;
      return 1.0;
    }
  };
};
struct Part {
  using Element = e2m1;
  using Order = List<C3, C1, C2>;
  using OfTensor = List<>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 4;
  static constexpr int elementBits = 16;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = 8;
  static constexpr int block = 0;
  static constexpr int placeRun = 1;
  static constexpr __device__ int columnOf(int place) { return place; }
  static constexpr Value valueForm = Value::Product;
  struct Scales { double c1, c2, c3; };
  template <class Values>
  static __device__ Scales scales(const Values &values, int column) {
    return {values.template read<C1>(column), values.template read<C2>(column), values.template read<C3>(column)};
  }
  static __device__ double product(const Scales &scales) { return scales.c1 * scales.c3; }
  static __device__ double value(const Scales &scales, double element) { return ((element * scales.c1) * scales.c3); }
  static __device__ double special(const Scales &scales) { return scales.c2 == 0 ? 5.0 : -5.0; }
  static constexpr bool storesNumbers = true;
  using Number = f16;
  static __device__ double number(const Scales &scales, double element) { return (element * scales.c1); }
};
} // namespace part0
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 4;
