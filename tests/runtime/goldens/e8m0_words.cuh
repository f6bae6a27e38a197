#define RHO_COMPONENT_PARAMETERS , void *c1
#define RHO_COMPONENT_ARGUMENTS , static_cast<unsigned char *>(c1)
using Element = e2m1;
constexpr int elementBits = 4;
constexpr int groupsPerWord = 4;
constexpr int scaleRun = 16;
struct Rule1 { // e8m0 per k[32]
  using Type = e8m0;
  static constexpr int index = 1;
  static constexpr long long group = 32;
  template <class Row, class Team>
  static __device__ double value(const Row &row, const Team &team) {
    const double r0 = team.absmax();
    return divide(bitFloor(r0), 4.0);
  }
};
template <class Row> __device__ void encodeComponents(const Row &row) {
  encodeComponent<Rule1>(row);
}
template <class Row> __device__ double elementScale(const Row &row, long long column) {
  return row.template component<e8m0, 32>(1, column);
}
