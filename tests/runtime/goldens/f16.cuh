namespace part0 {
struct Part {
  using Element = f16;
  using Order = List<>;
  using OfTensor = List<>;
  static constexpr int index = 0;
  static constexpr int firstBuffer = 0;
  static constexpr int components = 1;
  static constexpr int elementBits = 16;
  static constexpr int groupsPerWord = 1;
  static constexpr int scaleRun = 8;
  static constexpr int remapped = -1;
  static constexpr int block = 0;
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
  using Number = f16;
  static __device__ double number(const Scales &scales, double element) { return element; }
};
} // namespace part0
using Only = part0::Part;
constexpr int partCount = 1, bufferCount = 1;
