// mma.sync with block scaling, D = (A scaleA) (B scaleB) + C (PTX ISA, "Block Scaling for mma.sync"
// and "Matrix multiply-accumulate operation using mma instruction").
//
// Each row of A and each column of B has `groups` scales, one after the other along k, in
// consecutive bytes of one register, from the byte that byte-id selects. Of A, those of row r are
// in lane 4 (r mod 8) + 2 thread-id + r / 8; of B, those of column n in lane 4 n + thread-id.
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Fragments.h"
#include "runtime/emulator/Lanes.h"

#include <cmath>
#include <string>

namespace rho::emulator {

namespace {

using ScaleValue = double (*)(uint8_t);

double ue4m3(uint8_t code) { return double(e4m3ToF32(code)); }
double ue8m0(uint8_t code) { return code == 0xff ? NAN : std::ldexp(1.0, code - 127); }

// Lanes and bytes of one operand's scales, as its selectors say.
struct Scales {
  const uint32_t *words;
  int byte, thread;
};

// Those of each row of A and of each column of B.
struct ScaleValues {
  double a[16][4] = {}, b[8][4] = {};
};

// Inst: list registers of D, A, B, C, scale A, its two selectors, scale B, its two selectors; width
// columns of A; n scales of a row; flag: scales are ue4m3, which have no sign. What is wrong with
// the scales; empty: nothing.
template <ScaleValue Value>
std::string readScales(const Warp &w, const Inst &i, ScaleValues &values) {
  const int groups = i.n;
  const uint32_t *tail = w.list(i.list) + 4 + 4 + 2 + 4;
  std::string problem;
  auto scalesOf = [&](const char *operand, const uint32_t *registers, int threads) {
    const auto *byte = w.reg<uint16_t>(registers[1]), *thread = w.reg<uint16_t>(registers[2]);
    for (int lane = 1; lane < 32; ++lane)
      if (byte[lane] != byte[0] || thread[lane] != thread[0])
        problem = std::string("selectors of ") + operand + " that differ between threads";
    if (byte[0] % groups != 0 || byte[0] > 4 - groups)
      problem = "byte-id " + std::to_string(byte[0]) + " of " + operand + ", scales of " +
                std::to_string(groups) + " bytes begin at a multiple of that";
    if (thread[0] >= threads)
      problem = "thread-id " + std::to_string(thread[0]) + " of " + operand + ", it is less than " +
                std::to_string(threads);
    return Scales{w.reg<uint32_t>(registers[0]), byte[0], thread[0]};
  };
  const Scales a = scalesOf("A", tail, 2), b = scalesOf("B", tail + 3, 4);
  auto value = [&](const Scales &scales, int lane, int group) {
    auto code = uint8_t(scales.words[lane] >> (8 * (scales.byte + group)));
    if (i.flag && code >= 0x80)
      problem = "scale " + hex(code) + ", ue4m3 has no sign";
    return Value(code);
  };
  for (int group = 0; problem.empty() && group < groups; ++group) {
    for (int row = 0; row < 16; ++row)
      values.a[row][group] = value(a, 4 * (row % 8) + 2 * a.thread + row / 8, group);
    for (int column = 0; column < 8; ++column)
      values.b[column][group] = value(b, 4 * column + b.thread, group);
  }
  return problem;
}

template <class Element, ScaleValue Value> Flow blockScaled(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  ++w.mmas;
  ScaleValues scales;
  if (std::string problem = readScales<Value>(w, i, scales); !problem.empty())
    return w.fail(i, 0, DiagId::emulator_block_scale, {problem});

  const int k = i.width, groupK = k / i.n;
  const uint32_t *list = w.list(i.list);
  alignas(64) double a[16 * maxK], b[maxK * 8], sum[16 * 8] = {};
  constexpr int chunk = 4 * Element::perRegister;
  unpackA<Element>(w, list + 4, 4, a);
  unpackB<Element>(w, list + 8, 2, b);
  for (int column = 0; column < k; ++column) {
    for (int row = 0; row < 16; ++row)
      a[((column / chunk * 2 + row / 8) * 8 + row % 8) * chunk + column % chunk] *=
          scales.a[row][column / groupK];
    for (int n = 0; n < 8; ++n)
      b[column * 8 + n] *= scales.b[n][column / groupK];
  }
  multiply(a, b, sum, k, chunk);
  auto place = [](int r, int l) { return (l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1); };
  for (int r = 0; r < 4; ++r) // all of C before D is written, which may be C in another order
    for (int l = 0; l < 32; ++l)
      sum[place(r, l)] += double(w.reg<float>(list[10 + r])[l]);
  for (int r = 0; r < 4; ++r)
    for (int l = 0; l < 32; ++l)
      w.reg<float>(list[r])[l] = float(sum[place(r, l)]);
  return Flow::Next;
}

// One row per combination of the ISA's table of kinds; e2m1, e2m3 and e3m2 in bytes are not here.
struct Kind {
  std::string_view name, scaleVector;
  int k;
  Type element, scale;
  int groups;
  Handler handler;
};
constexpr Kind kinds[] = {
    {"kind::mxf4nvf4", "scale_vec::4X", 64, Type::E2M1, Type::UE4M3, 4,
     blockScaled<E2m1Element, ue4m3>},
    {"kind::mxf4nvf4", "scale_vec::2X", 64, Type::E2M1, Type::UE8M0, 2,
     blockScaled<E2m1Element, ue8m0>},
    {"kind::mxf4", "scale_vec::2X", 64, Type::E2M1, Type::UE8M0, 2,
     blockScaled<E2m1Element, ue8m0>},
    {"kind::mxf8f6f4", "scale_vec::1X", 32, Type::E4M3, Type::UE8M0, 1,
     blockScaled<E4m3Element, ue8m0>},
    {"kind::mxf8f6f4", "scale_vec::1X", 32, Type::E5M2, Type::UE8M0, 1,
     blockScaled<E5m2Element, ue8m0>},
};

} // namespace

bool isBlockScaled(const Decoder &d) { return d.peekModifier(1) == "block_scale"; }

void decodeBlockScaledMma(Decoder &d, int k) {
  std::string_view name = d.peekModifier(), vector = d.peekModifier(2);
  if (!d.take(name) || !d.take("block_scale") || !d.take(vector))
    return d.unknown();
  Type typeD = d.takeType(), typeA = d.takeType(), typeB = d.takeType(), typeC = d.takeType(),
       scale = d.takeType();
  if (d.failed())
    return;
  if (typeD != Type::F32 || typeC != Type::F32 || typeA != typeB)
    return d.unknown();
  for (const Kind &kind : kinds)
    if (kind.name == name && kind.scaleVector == vector && kind.k == k && kind.element == typeA &&
        kind.scale == scale) {
      d.expectOperands(8);
      // One after the other in Entry::lists.
      d.inst.list = d.destinations(0, 4, Type::B32);
      d.sources(1, 4, Type::B32);
      d.sources(2, 2, Type::B32);
      d.sources(3, 4, Type::B32);
      for (size_t operand : {4, 6}) {
        d.sources(operand, 1, Type::B32);
        d.sources(operand + 1, 2, Type::U16);
      }
      d.inst.width = uint8_t(k);
      d.inst.n = uint8_t(kind.groups);
      d.inst.flag = scale == Type::UE4M3;
      return d.emit(kind.handler);
    }
  d.unknown();
}

} // namespace rho::emulator
