namespace part0 {
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
      return divide(r0, 448.0);
    }
  };
};
struct Part {
  using Element = e4m3;
  using Order = List<C1>;
  using OfTensor = List<>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 2;
  static constexpr int elementBits = 8;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 0;
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
  using Number = e4m3;
  static __device__ double number(const Scales &scales, double element) { return element; }
};
} // namespace part0
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 2;
