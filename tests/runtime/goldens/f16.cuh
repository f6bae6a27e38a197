#define RHO_COMPONENT_PARAMETERS 
#define RHO_COMPONENT_ARGUMENTS 
using Element = f16;
constexpr int elementBits = 16;
constexpr int groupsPerWord = 1;
constexpr int scaleRun = 16;
template <class Row> __device__ void encodeComponents(const Row &row) {
}
template <class Row> __device__ double elementScale(const Row &row, long long column) {
  return 1.0;
}
