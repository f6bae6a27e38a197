// Codes of elements, components and candidates of rules. Part of quantize_activations.cu.

// --- elements

template <class Part>
__device__ double elementOf(const typename Part::Scales &scales, unsigned code) {
  constexpr unsigned mask = (1u << (Part::Element::bits - 1) << 1) - 1;
  return Part::remapped >= 0 && (code & mask) == static_cast<unsigned>(Part::remapped)
             ? Part::special(scales)
             : Part::Element::decode(code);
}

// Of equal values the even code is taken, then the lower.
__device__ inline bool isBefore(unsigned a, unsigned b) {
  return a % 2 != b % 2 ? a % 2 == 0 : a < b;
}

// The code with the nearest value: of two equally near ones the even code, then the lower.
template <class Part>
__device__ unsigned nearestCode(const typename Part::Scales &scales, double x) {
  if (x != x)
    return 0;
  bool hasLower = false, hasUpper = false;
  unsigned lower = 0, upper = 0;
  double below = 0, above = 0;
#pragma unroll 1
  for (unsigned code = 0; code < 1u << Part::Element::bits; ++code) {
    const double value = Part::value(scales, elementOf<Part>(scales, code));
    if (!(fabs(value) < bitsToDouble(0x7ff0000000000000ull)))
      continue;
    if (value < x) {
      if (!hasLower || value > below || (value == below && isBefore(code, lower))) {
        lower = code;
        below = value;
      }
      hasLower = true;
    } else {
      if (!hasUpper || value < above || (value == above && isBefore(code, upper))) {
        upper = code;
        above = value;
      }
      hasUpper = true;
    }
  }
  if (!hasLower || !hasUpper)
    return hasUpper ? upper : lower;
  const double up = above - x, down = x - below;
  if (up != down)
    return up < down ? upper : lower;
  return isBefore(upper, lower) ? upper : lower;
}

// The host's way: encode(x / scale), 0 where the scale is 0; with a remapped code the nearest
// value.
template <class Part>
__device__ unsigned encodeExactly(const typename Part::Scales &scales, float x) {
  if constexpr (Part::remapped >= 0)
    return nearestCode<Part>(scales, x);
  const double scale = Part::product(scales);
  return scale == 0 ? Part::Element::encode(0)
                    : Part::Element::encode(static_cast<double>(x) / scale);
}

// A chunk's codes and those among them (bits of `unsure`) that only encodeExactly() may decide.
struct Codes {
  unsigned unsure;
  unsigned codes[chunk];
};

// A number over its scale, in float: off by at most 2^-22 of itself where the scale is usable.
struct Quotient {
  float inverse = 0;
  bool usable = false;
  __device__ void divideBy(double scale) {
    const double positive = fabs(scale);
    usable = positive > 1e-30 && positive < 1e30;
    inverse = static_cast<float>(1.0 / scale);
  }
};

// What rounding a quotient gave: the code, its number, and whether that is what the exact quotient
// gives.
struct Rounded {
  unsigned code;
  float number;
  bool sure;
};

// Integers: after clamping to at most 8 bits the quotient is off by less than 2^-15. Only within
// 2^-14 of a tie can that change the code.
template <int Bits, bool Signed>
__device__ Rounded roundQuotient(Integer<Bits, Signed>, float quotient) {
  using Type = Integer<Bits, Signed>;
  constexpr float magic = 12582912.0f; // 1.5 * 2^23: its last bit is 1
  const float clamped =
      fminf(fmaxf(quotient, static_cast<float>(Type::low)), static_cast<float>(Type::high));
  const float shifted = clamped + magic;
  return {static_cast<unsigned>(__float_as_int(shifted)) & ((1u << Bits) - 1), shifted - magic,
          quotient == quotient && fabsf(clamped - (shifted - magic)) < 0.5f - 0x1p-14f};
}

// Floats of at most 8 bits: the quotient is off by less than 2^-18 of the step between codes.
// Adding 1.5 * 2^23 steps rounds it to a step; those above the smallest number of its exponent are
// the code's last bits.
template <int Bits, int ExponentBits, int MantissaBits, int Bias, Special special, unsigned MaxCode,
          unsigned NanCode, bool Signed>
__device__ Rounded
roundQuotient(Float<Bits, ExponentBits, MantissaBits, Bias, special, MaxCode, NanCode, Signed>,
              float quotient) {
  using Type = Float<Bits, ExponentBits, MantissaBits, Bias, special, MaxCode, NanCode, Signed>;
  constexpr int minField = 128 - Bias; // of f32's exponent at the smallest normal number
  const float largest = static_cast<float>(Type::magnitude(MaxCode));
  const float positive = fminf(Signed ? fabsf(quotient) : fmaxf(quotient, 0.0f), largest);
  const int field = max(static_cast<int>(__float_as_int(positive) >> 23), minField);
  const float magic = __int_as_float((field + 23 - MantissaBits) << 23 | 0x400000);
  const float shifted = positive + magic, step = __int_as_float((field - MantissaBits) << 23);
  const bool infinite = special == Special::Ieee && fabsf(quotient) > 1e30f;
  const unsigned sign = Signed ? static_cast<unsigned>(__float_as_int(quotient)) >> 31 : 0;
  const unsigned code = sign << (Bits - 1) | ((field - minField) << MantissaBits) +
                                                 (__float_as_int(shifted) - __float_as_int(magic));
  return {code, sign ? magic - shifted : shifted - magic,
          MantissaBits > 0 && !infinite && quotient == quotient &&
              fabsf(positive - (shifted - magic)) < step * (0.5f - 0x1p-14f)};
}
__device__ inline Rounded roundQuotient(PowerOfTwo, float) { return {0, 0, false}; }

// Whether the remapped code's number is nearer than the rounded one, where the margin of the
// quotient's error allows to say.
template <class Part>
__device__ void considerSpecial(Rounded &rounded, float quotient, float special) {
  constexpr unsigned code = static_cast<unsigned>(Part::remapped);
  if (rounded.code == code) { // -0, whose number code 0 has too; or a number that is no more
    rounded.sure = rounded.sure && code != 0 && Part::Element::decode(code) == 0;
    rounded.code = 0;
  }
  const float nearer = fabsf(quotient - special), far = fabsf(quotient - rounded.number);
  const float margin = 0x1p-19f * (fabsf(quotient) + fabsf(special) + fabsf(rounded.number));
  if (nearer < far - margin) {
    rounded.code = code;
    rounded.sure = fabsf(quotient) < 1e30f;
  } else {
    rounded.sure = rounded.sure && nearer > far + margin;
  }
}

// Codes of the chunk at `column`, of which the bits of `valid` count.
template <class Values>
__device__ Codes encodeChunk(const Values &values, long long column, unsigned valid,
                             const float (&x)[chunk]) {
  using Part = typename Values::Part;
  using Type = typename Part::Element;
  Codes out;
  out.unsure = 0;
  typename Part::Scales scales = {};
  if constexpr (Type::bits <= 8) {
    Quotient over;
    float special = 0;
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      if (j % Part::scaleRun == 0 && valid >> j != 0) {
        scales = Part::scales(values, column + j);
        over.divideBy(Part::product(scales));
        if constexpr (Part::remapped >= 0)
          special = static_cast<float>(Part::special(scales));
      }
      const float quotient = x[j] * over.inverse;
      Rounded rounded = roundQuotient(Type(), quotient);
      if constexpr (Part::remapped >= 0)
        considerSpecial<Part>(rounded, quotient, special);
      out.codes[j] = rounded.code;
      out.unsure |= over.usable && rounded.sure ? 0u : 1u << j;
    }
    // Rare, hence one by one; an index that varies would keep x and codes out of registers.
    for (unsigned unsure = out.unsure & valid; unsure != 0; unsure &= unsure - 1) {
      const int at = __ffs(static_cast<int>(unsure)) - 1;
      float number = 0;
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        number = j == at ? x[j] : number;
      const unsigned code = encodeExactly<Part>(Part::scales(values, column + at), number);
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        out.codes[j] = j == at ? code : out.codes[j];
    }
  } else {
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      if (j % Part::scaleRun == 0 && valid >> j != 0)
        scales = Part::scales(values, column + j);
      out.codes[j] = encodeExactly<Part>(scales, x[j]);
    }
  }
  return out;
}

// Bits of a chunk's numbers at `column` that lie before `end`.
__device__ inline unsigned validBits(long long column, long long end) {
  const long long left = end - column;
  return left >= chunk ? 0xffffu : left <= 0 ? 0u : (1u << left) - 1;
}

// Calls visit(j, squared error of the chunk's number j).
template <class Values, class Visit>
__device__ void visitErrors(const Values &values, long long column, long long end,
                            const Visit &visit) {
  using Part = typename Values::Part;
  float x[chunk];
  values.load(column, end, x);
  const unsigned valid = validBits(column, end);
  const Codes found = encodeChunk(values, column, valid, x);
  typename Part::Scales scales = {};
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    if (j % Part::scaleRun == 0 && valid >> j != 0)
      scales = Part::scales(values, column + j);
    if (valid >> j & 1) {
      const double difference =
          static_cast<double>(x[j]) - Part::value(scales, elementOf<Part>(scales, found.codes[j]));
      visit(j, difference * difference);
    }
  }
}

// In an order without bank conflicts: one number is left out after each chunk and each block.
__device__ inline double *sharedErrors() {
  __shared__ double errors[threads * chunk + threads + threads + 1];
  return errors;
}

// The squared errors of the row's blocks, each summed number by number, to out[0 ...].
template <class Row> __device__ void sumErrors(const Row &row, long long block, double *out) {
  constexpr int atOnce = threads * chunk;
  double *const errors = sharedErrors();
  for (long long first = 0; first < row.k; first += atOnce) {
    const long long firstBlock = first / block;
    auto place = [&](long long column, long long ofBlock) {
      return column - first + (column - first) / chunk + (ofBlock - firstBlock);
    };
    if (const long long column = first + threadIdx.x * chunk; column < row.k) {
      double *const to = errors + place(column, column / block);
      visitErrors(row, column, row.k, [&](int j, double error) { to[j] = error; });
    }
    __syncthreads();
    const long long mine = firstBlock + threadIdx.x;
    const long long begin = max(mine * block, first);
    const long long end = min(min((mine + 1) * block, first + atOnce), row.k);
    if (begin < end) {
      double sum = begin > mine * block ? out[mine] : 0;
      for (long long column = begin; column < end; ++column)
        sum += errors[place(column, mine)];
      out[mine] = sum;
    }
    __syncthreads();
  }
}

// --- components

template <class Component, class Row> struct Groups {
  static constexpr long long size = Component::group;
  long long count, stored; // with padding
  __device__ explicit Groups(const Row &row) {
    constexpr int w = Row::Part::groupsPerWord;
    count = (row.k + size - 1) / size;
    stored = (count + w - 1) / w * w;
  }
};

// Computes one component of the whole row by a candidate of its rule. All threads take part; the
// codes are visible to all threads afterwards.
template <class Component, class Row>
__device__ void encodeComponent(const Row &row, int candidate) {
  constexpr long long group = Component::group;
  using Type = typename Component::Type;
  if constexpr (group == 0) {
    Team<Row, threads> team(row, 0, row.k, static_cast<int>(threadIdx.x));
    const double value = Component::value(candidate, row, team);
    if (threadIdx.x == 0)
      row.template store<Component>(0, Type::encode(value));
  } else {
    constexpr int lanes = group >= 512   ? 32
                          : group >= 256 ? 16
                          : group >= 128 ? 8
                          : group >= 64  ? 4
                          : group >= 32  ? 2
                                         : 1;
    const Groups<Component, Row> groups(row);
    // Every lane makes every round: the shuffles are the whole warp's.
    for (long long first = 0; first < groups.stored; first += threads / lanes) {
      long long mine = first + threadIdx.x / lanes;
      // A team past the last group reduces nothing; column 0 is there to be read.
      long long begin = mine < groups.count ? mine * group : 0;
      long long end = mine >= groups.count ? begin : min(begin + group, row.k);
      Team<Row, lanes> team(row, begin, end, static_cast<int>(threadIdx.x % lanes));
      double value = Component::value(candidate, row, team);
      if (mine < groups.stored && threadIdx.x % lanes == 0)
        row.template store<Component>(mine * group, Type::encode(mine < groups.count ? value : 0));
    }
  }
  __syncthreads();
}

// A row of which one thread keeps the components from `From` on in the order of encoding, those of
// the numbers that it encodes.
template <class OfRow, int From> struct Trial {
  using Part = typename OfRow::Part;
  using Row = OfRow;
  const Row &row;
  unsigned codes[Part::components];
  __device__ void load(long long column, long long end, float (&out)[chunk]) const {
    row.load(column, end, out);
  }
  template <class Component> __device__ double read(long long column) const {
    if constexpr (Component::position >= From)
      return Component::Type::decode(codes[Component::index]);
    else
      return row.template read<Component>(column);
  }
};

// Encodes the components from `Position` on for the numbers of [begin, end), which share all
// before. Either the codes are stored, or the squared errors are added to `error`.
template <int Position, class Values>
__device__ void encodeWithin(Values &values, long long begin, long long end, bool stores,
                             double &error) {
  using Part = typename Values::Part;
  if constexpr (Position == Part::Order::size) {
    if (!stores)
      for (long long column = begin; column < end; column += chunk)
        visitErrors(values, column, end, [&](int, double more) { error += more; });
  } else {
    using Component = Get<Position, typename Part::Order>;
    for (long long at = begin; at < end; at += Component::group) {
      const long long stop = min(end, at + Component::group);
      Team<typename Values::Row, 1> team(values.row, at, stop, 0);
      auto take = [&](int candidate) {
        values.codes[Component::index] =
            Component::Type::encode(Component::value(candidate, values, team));
      };
      int best = 0;
      if constexpr (Component::candidates > 1) {
        double least = 0;
        for (int i = 0; i < Component::candidates; ++i) {
          take(i);
          double here = 0;
          encodeWithin<Position + 1>(values, at, stop, false, here);
          if (i == 0 || here < least) {
            best = i;
            least = here;
          }
        }
      }
      take(best);
      if (stores)
        values.row.template store<Component>(at, values.codes[Component::index]);
      encodeWithin<Position + 1>(values, at, stop, stores, error);
    }
  }
}

template <int Position, class Row> __device__ void clearPadding(const Row &row) {
  if constexpr (Position < Row::Part::Order::size) {
    using Component = Get<Position, typename Row::Part::Order>;
    const Groups<Component, Row> groups(row);
    for (long long i = groups.count + threadIdx.x; i < groups.stored; i += threads)
      row.template store<Component>(i * Component::group, 0);
    clearPadding<Position + 1>(row);
  }
}

// All components from `Position` on. The best of several candidates is that with the least squared
// error of all numbers that share it.
template <int Position, class Row> __device__ void encodeComponents(const Row &row) {
  using Order = typename Row::Part::Order;
  if constexpr (Position < Order::size) {
    using Component = Get<Position, Order>;
    if constexpr (Component::candidates == 1) {
      encodeComponent<Component>(row, 0);
      encodeComponents<Position + 1>(row);
    } else if constexpr (Component::group != 0) {
      const Groups<Component, Row> groups(row);
      for (long long i = threadIdx.x; i < groups.count; i += threads) {
        Trial<Row, Position> values{row, {}};
        const long long begin = i * Component::group;
        double none = 0;
        encodeWithin<Position>(values, begin, min(begin + Component::group, row.k), true, none);
      }
      clearPadding<Position>(row);
      __syncthreads();
    } else {
      __shared__ double error;
      int best = 0;
      double least = 0;
      for (int i = 0; i < Component::candidates; ++i) {
        encodeComponent<Component>(row, i);
        encodeComponents<Position + 1>(row);
        sumErrors(row, row.k, &error);
        if (i == 0 || error < least) {
          best = i;
          least = error;
        }
        __syncthreads(); // read before the next one is summed
      }
      encodeComponent<Component>(row, best);
      encodeComponents<Position + 1>(row);
    }
  }
}
