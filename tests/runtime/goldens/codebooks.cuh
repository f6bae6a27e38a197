struct Book0e4b5b83148b9dd4 {
  static constexpr int bits = 4;
  static __device__ double values(unsigned code) {
    static constexpr double all[] = {-1.0, -0.6961928009986877, 0.0, 0.0, 0.1, 0.33791524171829224, 1.0, 1.7, 2.0, 2.1, 2.2, 3.0, -5.0, -7.0, 0.5, 0.55};
    return all[code];
  }
};
struct Bookd2aa6bfe7553be64 {
  static constexpr int bits = 2;
  static __device__ double values(unsigned code) {
    static constexpr double all[] = {0.25, 0.5, 1.0, 3.1};
    return all[code];
  }
};
namespace part0 {
struct C1 { // codebook [0.25, 0.5, 1, 3.1] per k[24]
  using Type = Codebook<Bookd2aa6bfe7553be64>;
  using Unit = unsigned char;
  static constexpr int index = 1;
  static constexpr int position = 0;
  static constexpr int buffer = 1;
  static constexpr int shift = 0;
  static constexpr int group = 24;
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
      return divide(r0, 3.0);
    }
  };
};
struct Part {
  using Element = Codebook<Book0e4b5b83148b9dd4>;
  using Order = List<C1>;
  using OfTensor = List<>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 2;
  static constexpr int elementBits = 4;
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
  using Number = Codebook<Book0e4b5b83148b9dd4>;
  static __device__ double number(const Scales &scales, double element) { return element; }
};
} // namespace part0
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 2;
