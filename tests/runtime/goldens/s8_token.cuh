#define RHO_COMPONENT_PARAMETERS , void *c1
#define RHO_COMPONENT_ARGUMENTS , static_cast<unsigned char *>(c1)
using Element = s8;
constexpr int elementBits = 8;
constexpr int groupsPerWord = 1;
constexpr int scaleRun = 16;
struct Rule1 { // f32 per token
  using Type = f32;
  static constexpr int index = 1;
  static constexpr long long group = 0;
  template <class Row, class Team>
  static __device__ double value(const Row &row, const Team &team) {
    const double r0 = team.absmax();
    return divide(r0, 127.0);
  }
};
template <class Row> __device__ void encodeComponents(const Row &row) {
  encodeComponent<Rule1>(row);
}
template <class Row> __device__ double elementScale(const Row &row, long long column) {
  return row.template component<f32, 0>(1, column);
}
