#define RHO_COMPONENT_PARAMETERS , void *c1, void *c2
#define RHO_COMPONENT_ARGUMENTS , static_cast<unsigned char *>(c1), static_cast<unsigned char *>(c2)
using Element = e2m1;
constexpr int elementBits = 4;
constexpr int groupsPerWord = 1;
constexpr int scaleRun = 8;
struct Rule2 { // f32 per k[48]
  using Type = f32;
  static constexpr int index = 2;
  static constexpr long long group = 48;
  template <class Row, class Team>
  static __device__ double value(const Row &row, const Team &team) {
    const double r0 = team.template reduce<Max>([](float x) { return x; });
    const double r1 = team.template reduce<Min>([](float x) { return x; });
    const double r2 = team.absmax();
    return (divide((r0 - (r1 * 2.0)), 0.10000000000000001) + (-f16::decode(f16::encode(r2))));
  }
};
struct Rule1 { // e4m3 per k[24]
  using Type = e4m3;
  static constexpr int index = 1;
  static constexpr long long group = 24;
  template <class Row, class Team>
  static __device__ double value(const Row &row, const Team &team) {
    const double c2 = row.template component<f32, 48>(2, team.begin);
    const double r0 = team.template reduce<Absmax>([&](double x) { return (divide(x, c2) + 1.0); });
    return divide(r0, 6.0);
  }
};
template <class Row> __device__ void encodeComponents(const Row &row) {
  encodeComponent<Rule2>(row);
  encodeComponent<Rule1>(row);
}
template <class Row> __device__ double elementScale(const Row &row, long long column) {
  return row.template component<e4m3, 24>(1, column) * row.template component<f32, 48>(2, column);
}
