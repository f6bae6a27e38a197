#define RHO_COMPONENT_PARAMETERS , void *c1
#define RHO_COMPONENT_ARGUMENTS , static_cast<unsigned char *>(c1)
using Element = s4;
constexpr int elementBits = 4;
constexpr int groupsPerWord = 1;
constexpr int scaleRun = 16;
struct Rule1 { // f16 per k[64]
  using Type = f16;
  static constexpr int index = 1;
  static constexpr long long group = 64;
  template <class Row, class Team>
  static __device__ double value(const Row &row, const Team &team) {
    const double r0 = team.absmax();
    return divide(r0, 7.0);
  }
};
template <class Row> __device__ void encodeComponents(const Row &row) {
  encodeComponent<Rule1>(row);
}
template <class Row> __device__ double elementScale(const Row &row, long long column) {
  return row.template component<f16, 64>(1, column);
}
