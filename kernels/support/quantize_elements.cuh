// Codes of elements, components and candidates of rules. Part of quantize_activations.cu.

// --- elements

template <class Part>
__device__ double elementOf(const typename Part::Scales &scales, unsigned code) {
  constexpr unsigned mask = (1u << (Part::Element::bits - 1) << 1) - 1;
  return Part::remapped >= 0 && (code & mask) == static_cast<unsigned>(Part::remapped)
             ? Part::special(scales)
             : Part::Element::decode(code);
}

// Of some codes that with the nearest value.
template <class Part, class CodeOf>
__device__ unsigned nearestCode(const typename Part::Scales &scales, int count,
                                const CodeOf &codeOf, double x) {
  constexpr unsigned lowest = Candidates<typename Part::Element>::lowest;
  if (x != x)
    return lowest;
  return nearestOf(
      count, codeOf,
      [&](unsigned code) { return Part::value(scales, elementOf<Part>(scales, code)); }, x, lowest);
}

// Numbers over their scale, in float: off by at most 2^-22 of themselves, not at all where the
// scale is a power of two. Where the value is a line, element * slope + offset, numbers less the
// offset over the slope, off by as much.
template <class Part> struct Quotient {
  float inverse = 0;
  float error = 0; // 1, 0, or infinity where the scale is of no use
  double offset = 0;
  __device__ void divideBy(const typename Part::Scales &scales) {
    double scale = 0; // no quotient
    if constexpr (Part::valueForm == Value::Product)
      scale = Part::product(scales);
    if constexpr (Part::valueForm == Value::Line) {
      offset = Part::value(scales, 0);
      const double slope = Part::value(scales, 1) - offset;
      scale = fabs(offset) < fabs(slope) * 0x1p20 ? slope : 0;
    }
    const float rounded = static_cast<float>(scale);
    const bool usable = fabsf(rounded) > 1e-30f && fabsf(rounded) < 1e30f;
    const bool isExact = Part::valueForm == Value::Product &&
                         (doubleToBits(scale) & 0xfffffffffffffull) == 0; // a power of two
    inverse = 1.0f / rounded;
    error = !usable ? __int_as_float(0x7f800000) : isExact ? 0.0f : 1.0f;
  }
  __device__ float of(float x) const {
    if constexpr (Part::valueForm == Value::Line)
      return static_cast<float>(static_cast<double>(x) - offset) * inverse;
    return x * inverse;
  }
};

// The host's way: encode(x / scale), 0 where the scale is 0; with a remapped code, and where the
// value is no product, the nearest value, on a line one of three.
template <class Part>
__device__ unsigned encodeExactly(const typename Part::Scales &scales, float x) {
  using Type = typename Part::Element;
  if constexpr (Part::remapped >= 0 || Part::valueForm != Value::Product) {
    Quotient<Part> over;
    if constexpr (Part::valueForm == Value::Line) {
      over.divideBy(scales);
      const int low = static_cast<int>(Type::low), high = static_cast<int>(Type::high);
      if (over.error < 2) { // the quotient is off by far less than 1
        const float clamped =
            fminf(fmaxf(over.of(x), static_cast<float>(low)), static_cast<float>(high));
        const int middle = static_cast<int>(clamped); // the next towards 0
        return nearestCode<Part>(
            scales, 3,
            [&](int i) {
              return static_cast<unsigned>(min(max(middle - 1 + i, low), high)) &
                     ((1u << Type::bits) - 1);
            },
            x);
      }
    }
    using All = Candidates<Type>;
    return nearestCode<Part>(scales, All::count, [](int i) { return All::at(i); }, x);
  }
  const double scale = Part::product(scales);
  return scale == 0 ? Type::encode(0) : Type::encode(static_cast<double>(x) / scale);
}

// What rounding a quotient gave: the code, its number, and whether that is what the exact quotient
// gives: the distance to the number is that of a tie less `error` times a margin.
template <class Real> struct Rounded {
  unsigned code;
  Real number;
  bool sure;
};

// Integers: after clamping to at most 8 bits the quotient is off by less than 2^-15, half of the
// margin.
template <int Bits, bool Signed, int Low, int High>
__device__ Rounded<float> roundQuotient(Integer<Bits, Signed, Low, High>, float quotient,
                                        float error) {
  using Type = Integer<Bits, Signed, Low, High>;
  constexpr float magic = 12582912.0f; // 1.5 * 2^23: its last bit is 1
  const float clamped =
      fminf(fmaxf(quotient, static_cast<float>(Type::low)), static_cast<float>(Type::high));
  const float shifted = clamped + magic;
  return {static_cast<unsigned>(__float_as_int(shifted)) & ((1u << Bits) - 1), shifted - magic,
          quotient == quotient && fabsf(clamped - (shifted - magic)) <= 0.5f - error * 0x1p-14f};
}

// Floats: the quotient is off by less than 2^(MantissaBits - 21) of the step between codes, half of
// the margin. Adding 1.5 * 2^23 steps rounds it to a step; those above the smallest number of its
// exponent are the code's last bits.
template <int Bits, int ExponentBits, int MantissaBits, int Bias, Special special, unsigned MaxCode,
          unsigned NanCode, bool Signed>
__device__ Rounded<FloatReal<ExponentBits, special>>
roundQuotient(Float<Bits, ExponentBits, MantissaBits, Bias, special, MaxCode, NanCode, Signed>,
              float quotient, float error) {
  using Type = Float<Bits, ExponentBits, MantissaBits, Bias, special, MaxCode, NanCode, Signed>;
  constexpr int drop = 23 - MantissaBits; // bits that the code does not have
  constexpr int minField = 128 - Bias;    // of f32's exponent at the smallest normal number
  constexpr float margin = 8.0f / (1 << drop);
  const float largest = static_cast<float>(Type::magnitude(MaxCode));
  const float positive = fminf(Signed ? fabsf(quotient) : fmaxf(quotient, 0.0f), largest);
  const int field = max(static_cast<int>(__float_as_int(positive) >> 23), minField);
  const float power = __int_as_float((field + drop) << 23), magic = 1.5f * power;
  const float shifted = positive + magic;
  const unsigned sign = Signed ? static_cast<unsigned>(__float_as_int(quotient)) >> 31 : 0;
  const unsigned code = sign << (Bits - 1) | ((field - minField) << MantissaBits) +
                                                 (__float_as_int(shifted) - __float_as_int(magic));
  // Below 1e30 nothing overflows; below 2^-100 quotients of types as wide as f32 lose bits.
  return {code, sign ? magic - shifted : shifted - magic,
          MantissaBits > 0 && fabsf(quotient) < 1e30f && (minField > 1 || positive >= 0x1p-100f) &&
              fabsf(positive - (shifted - magic)) <=
                  power * (0x1p-24f - error * margin * 0x1p-23f)};
}
// Codebooks: differences are off by less than 2^-21 of what they are of.
template <class Table>
__device__ Rounded<double> roundQuotient(Codebook<Table>, float quotient, float error) {
  const float infinity = __int_as_float(0x7f800000);
  float nearest = infinity, second = infinity;
  unsigned found = 0;
#pragma unroll 16
  for (int code = 0; code < Codebook<Table>::codes; ++code) {
    const float distance = fabsf(quotient - static_cast<float>(Table::values(code)));
    const bool isNearer = distance < nearest;
    second = isNearer ? nearest : fminf(second, distance);
    nearest = isNearer ? distance : nearest;
    found = isNearer ? static_cast<unsigned>(code) : found;
  }
  const float margin = (1.0f + error) * 0x1p-20f * (fabsf(quotient) + second);
  return {found, Table::values(found), second - nearest > margin};
}
// Others: no number, which nothing is nearer than.
template <class Type> __device__ Rounded<float> roundQuotient(Type, float, float) {
  return {0, __int_as_float(0x7fc00000), false};
}

// Whether the remapped code's number is nearer than the rounded one, where the margin of the
// quotient's error allows to say.
template <class Part>
__device__ void considerSpecial(Rounded<typename Part::Element::Real> &rounded, float quotient,
                                float special) {
  constexpr unsigned code = static_cast<unsigned>(Part::remapped);
  if (rounded.code == code) { // -0, whose number code 0 has too; or a number that is no more
    rounded.sure = rounded.sure && code != 0 && Part::Element::decode(code) == 0;
    rounded.code = 0;
  } else if (code != 0 && rounded.number == 0 && Part::Element::decode(0) == 0) {
    rounded.code = 0; // of 0 and -0 the lower code
  }
  const float number = static_cast<float>(rounded.number);
  const float nearer = fabsf(quotient - special), far = fabsf(quotient - number);
  const float margin = 0x1p-19f * (fabsf(quotient) + fabsf(special) + fabsf(number));
  if (nearer < far - margin) {
    rounded.code = code;
    rounded.sure = fabsf(quotient) < 1e30f;
  } else {
    rounded.sure = rounded.sure && nearer > far + margin;
  }
}

// A code as it is stored: in StoredBits bits.
template <int StoredBits, class Type> __device__ unsigned stored(Type, unsigned code) {
  return code;
}
template <int StoredBits, int Bits, int Low, int High>
__device__ unsigned stored(Integer<Bits, true, Low, High>, unsigned code) {
  constexpr unsigned signBit = 1u << (Bits - 1), mask = (1u << (StoredBits - 1) << 1) - 1;
  return ((code ^ signBit) - signBit) & mask;
}

// Codes of a chunk as they are stored, and their numbers; that of a remapped code is
// Part::special().
template <class Part> struct Codes {
  static constexpr int bits = Part::elementBits, wordCount = chunk * bits / 32;
  using Real = typename Part::Element::Real;
  unsigned words[wordCount] = {};
  Real numbers[chunk];
  unsigned remapped = 0; // a bit for each number

  // Drops the first and appends one.
  __device__ void push(unsigned code, Real number) {
#pragma unroll
    for (int i = 0; i < wordCount; ++i) {
      const unsigned next = i + 1 < wordCount ? words[i + 1] : code;
      words[i] = bits == 32 ? next : words[i] >> bits % 32 | next << (32 - bits) % 32;
    }
#pragma unroll
    for (int j = 0; j + 1 < chunk; ++j)
      numbers[j] = numbers[j + 1];
    numbers[chunk - 1] = number;
  }
};

// Codes of the `count` first numbers of the chunk at `column`, 0 behind them.
template <class Values>
__device__ Codes<typename Values::Part> encodeChunk(const Values &values, int column, int count,
                                                    const float (&x)[chunk]) {
  using Part = typename Values::Part;
  using Type = typename Part::Element;
  constexpr int bits = Part::elementBits;
  Codes<Part> out;
  unsigned unsure = 0;
  Quotient<Part> over;
  float special = 0;
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    if (j % Part::scaleRun == 0 && j < count) {
      const typename Part::Scales scales = Part::scales(values, column + j);
      over.divideBy(scales);
      if constexpr (Part::remapped >= 0)
        special = static_cast<float>(Part::special(scales));
    }
    const float quotient = over.of(x[j]);
    auto rounded = roundQuotient(Type(), quotient, over.error);
    if constexpr (Part::remapped >= 0) {
      considerSpecial<Part>(rounded, quotient, special);
      out.remapped |= rounded.code == static_cast<unsigned>(Part::remapped) ? 1u << j : 0u;
    }
    out.words[j * bits / 32] |= stored<bits>(Type(), rounded.code) << (j * bits % 32);
    out.numbers[j] = rounded.number;
    unsure |= rounded.sure ? 0u : 1u << j;
  }
  // Rare, hence one by one, pushed in behind: an index that varies would keep all out of registers.
  if ((unsure & ((1u << count) - 1)) != 0) {
    float left[chunk];
#pragma unroll
    for (int j = 0; j < chunk; ++j)
      left[j] = x[j];
    out.remapped = 0;
#pragma unroll 1
    for (int at = 0; at < chunk; ++at) {
      const unsigned code =
          encodeExactly<Part>(Part::scales(values, column + min(at, count - 1)), left[0]);
      out.push(stored<bits>(Type(), code), static_cast<typename Type::Real>(Type::decode(code)));
      out.remapped |= code == static_cast<unsigned>(Part::remapped) ? 1u << at : 0u;
#pragma unroll
      for (int j = 0; j + 1 < chunk; ++j)
        left[j] = left[j + 1];
    }
  }
#pragma unroll
  for (int i = 0; i < Codes<Part>::wordCount; ++i)
    out.words[i] &= static_cast<unsigned>((1ull << min(max(count * bits - 32 * i, 0), 32)) - 1);
  return out;
}

// How many of a chunk's numbers at `column` lie before `end`.
__device__ inline int countUpTo(int column, int end) { return min(max(end - column, 0), chunk); }

// Calls visit(j, squared error) for the `count` first numbers of a chunk.
template <class Values, class Visit>
__device__ void visitErrors(const Values &values, int column, int count, const float (&x)[chunk],
                            const Codes<typename Values::Part> &found, const Visit &visit) {
  using Part = typename Values::Part;
  typename Part::Scales scales = {};
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    if (j % Part::scaleRun == 0 && j < count)
      scales = Part::scales(values, column + j);
    const bool remapped = Part::remapped >= 0 && found.remapped >> j & 1;
    const double element = remapped ? Part::special(scales) : found.numbers[j];
    const double difference = static_cast<double>(x[j]) - Part::value(scales, element);
    if (j < count)
      visit(j, difference * difference);
  }
}

// What becomes of a row's elements: their codes go to memory, `pitch` bytes of them, or else the
// squared errors of each block, summed number by number. A block is a multiple of chunk or the row.
struct Elements {
  unsigned char *codes;
  int pitch;
  double *errors;
  int block;
};

// What threads exchange of the numbers that they encode at once.
constexpr int atOnce = threads * chunk;
union Exchange {
  double errors[atOnce + threads + threads + 1];
  unsigned words[atOnce];
};
__device__ inline Exchange &exchange() {
  __shared__ Exchange shared;
  return shared;
}

// An error's place, by its number and its block of those at once: between those of two chunks and
// of two blocks lies an unused one, against bank conflicts.
__device__ inline int placeOfError(int number, int block) {
  return number + number / chunk + block;
}

// Adds the errors from column `first` on to those of their blocks, a thread for each block.
__device__ inline void sumErrors(const Elements &to, int first, int k) {
  const int end = min(first + atOnce, k), block = first / to.block + static_cast<int>(threadIdx.x);
  if (block > (end - 1) / to.block)
    return;
  const int begin = block * to.block, stop = min(begin + to.block, end);
  double sum = begin < first ? to.errors[block] : 0;
#pragma unroll 4
  for (int column = max(begin, first); column < stop; ++column)
    sum += exchange().errors[placeOfError(column - first, static_cast<int>(threadIdx.x))];
  to.errors[block] = sum;
}

// Codes to memory, in the order of places.
template <class Part>
__device__ void storeCodes(const Codes<Part> &codes, int place, const Elements &to) {
  constexpr int words = Codes<Part>::wordCount;
  const int first = place / chunk * words;
#pragma unroll
  for (int i = 0; i < words; ++i)
    if (words <= 4 || (first + i) * 4 < to.pitch) // a multiple of 16 bytes
      reinterpret_cast<unsigned *>(to.codes)[first + i] = codes.words[i];
}

// The codes of the chunk at place `at` of those that threads have exchanged.
template <class Part> __device__ Codes<Part> exchangedCodes(int at) {
  constexpr int bits = Part::elementBits;
  constexpr unsigned mask = (1u << (bits - 1) << 1) - 1;
  Codes<Part> out;
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    const int bit = Part::columnOf(at + j) * bits;
    out.words[j * bits / 32] |= (exchange().words[bit / 32] >> bit % 32 & mask) << (j * bits % 32);
  }
  return out;
}

// The numbers that codes stand for, in their places; 0 for -0.
template <class Row>
__device__ void storeNumbers(const Row &row, int column, int count,
                             Codes<typename Row::Part> &found) {
  using Part = typename Row::Part;
  constexpr int bits = Part::elementBits;
  typename Part::Scales scales = {};
#pragma unroll
  for (int i = 0; i < Codes<Part>::wordCount; ++i)
    found.words[i] = 0;
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    if (j % Part::scaleRun == 0 && j < count)
      scales = Part::scales(row, column + j);
    const bool remapped = Part::remapped >= 0 && found.remapped >> j & 1;
    const double element = remapped ? Part::special(scales) : found.numbers[j];
    if (j < count)
      found.words[j * bits / 32] |= Part::Number::encode(Part::number(scales, element) + 0.0)
                                    << (j * bits % 32);
  }
}

// All numbers of a row, whose components are there.
template <class Row> __device__ void encodeElements(const Row &row, const Elements &to) {
  using Part = typename Row::Part;
  constexpr bool inOrder = Part::placeRun == 1; // of columns
  const bool measures = to.errors != nullptr;
  const int places = to.pitch * 8 / Part::elementBits;
  const int end =
      measures ? row.k : (places + Part::placeRun - 1) / Part::placeRun * Part::placeRun;
#pragma unroll 1
  for (int first = 0; first < end; first += atOnce) {
    const int at = static_cast<int>(threadIdx.x) * chunk, column = first + at;
    if (column < end) {
      float x[chunk];
      row.load(column, row.k, x);
      const int count = countUpTo(column, row.k);
      Codes<Part> found = encodeChunk(row, column, count, x);
      if constexpr (Part::storesNumbers)
        if (!measures)
          storeNumbers(row, column, count, found);
      if (measures) {
        double *const errors =
            exchange().errors + placeOfError(at, column / to.block - first / to.block);
        visitErrors(row, column, count, x, found, [&](int j, double error) { errors[j] = error; });
      } else if constexpr (inOrder) {
        storeCodes(found, column, to);
      } else {
#pragma unroll
        for (int i = 0; i < Codes<Part>::wordCount; ++i)
          exchange().words[at / chunk * Codes<Part>::wordCount + i] = found.words[i];
      }
    }
    if (inOrder && !measures)
      continue;
    __syncthreads();
    if (measures)
      sumErrors(to, first, row.k);
    else if (column < places)
      storeCodes(exchangedCodes<Part>(at), column, to);
    __syncthreads();
  }
}

// --- components

template <class Component, class Row> struct Groups {
  static constexpr int size = Component::group;
  int count, stored; // with padding
  __device__ explicit Groups(const Row &row) {
    constexpr int w = Row::Part::groupsPerWord;
    count = (row.k + size - 1) / size;
    stored = (count + w - 1) / w * w;
  }
};

// One component of the whole row, by its rule's only value. All threads take part; the codes are
// visible to all threads afterwards.
template <class Component, class Row> __device__ void encodeGroups(const Row &row) {
  constexpr int group = Component::group;
  constexpr int lanes = group >= 32 * chunk   ? 32
                        : group >= 16 * chunk ? 16
                        : group >= 8 * chunk  ? 8
                        : group >= 4 * chunk  ? 4
                        : group >= 2 * chunk  ? 2
                                              : 1;
  const Groups<Component, Row> groups(row);
  // Every lane makes every round: the shuffles are the whole warp's.
#pragma unroll 1
  for (int first = 0; first < groups.stored; first += threads / lanes) {
    const int mine = first + static_cast<int>(threadIdx.x) / lanes;
    // A team past the last group reduces nothing; column 0 is there to be read.
    const bool there = mine < groups.count;
    const int begin = there ? mine * group : 0;
    const int end = there ? min(begin + group, row.k) : begin;
    const Team<Row, lanes> team(row, begin, end, static_cast<int>(threadIdx.x % lanes));
    const double value = typename Component::Rule(row, team).value(0);
    if (mine < groups.stored && threadIdx.x % lanes == 0)
      row.template store<Component>(mine * group, there ? Component::Type::encode(value) : 0);
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
  template <class Component> __device__ double read(int column) const {
    if constexpr (Component::position >= From)
      return Component::Type::decode(codes[Component::index]);
    else
      return row.template read<Component>(column);
  }
};

// Encodes the components from `Position` on for the numbers of [begin, end), which share all
// before. Either the codes are stored, or the squared errors are added to `error`.
template <int Position, class Values>
__device__ void encodeWithin(Values &values, int begin, int end, bool stores, double &error) {
  using Part = typename Values::Part;
  if constexpr (Position == Part::Order::size) {
#pragma unroll 1
    for (int column = stores ? end : begin; column < end; column += chunk) {
      float x[chunk];
      values.row.load(column, end, x);
      const int count = countUpTo(column, end);
      const auto found = encodeChunk(values, column, count, x);
      visitErrors(values, column, count, x, found, [&](int, double more) { error += more; });
    }
  } else {
    using Component = Get<Position, typename Part::Order>;
#pragma unroll 1
    for (int at = begin; at < end; at += Component::group) {
      const int stop = min(end, at + Component::group);
      const Team<typename Values::Row, 1> team(values.row, at, stop, 0);
      const typename Component::Rule rule(values, team);
      double least = 0;
      int best = 0;
      // Of several candidates the best one is taken in the end.
      constexpr int trials = Component::candidates > 1 ? Component::candidates : 0;
#pragma unroll 1
      for (int i = 0; i <= trials; ++i) {
        const bool tries = i < trials;
        const unsigned code = Component::Type::encode(rule.value(tries ? i : best));
        values.codes[Component::index] = code;
        if (stores && !tries)
          values.row.template store<Component>(at, code);
        double here = tries ? 0 : error;
        encodeWithin<Position + 1>(values, at, stop, stores && !tries, here);
        if (!tries)
          error = here;
        else if (i == 0 || farOrNear(here) < least) {
          best = i;
          least = farOrNear(here);
        }
      }
    }
  }
}

template <int Position, class Row> __device__ void clearPadding(const Row &row) {
  if constexpr (Position < Row::Part::Order::size) {
    using Component = Get<Position, typename Row::Part::Order>;
    const Groups<Component, Row> groups(row);
    for (int i = groups.count + static_cast<int>(threadIdx.x); i < groups.stored; i += threads)
      row.template store<Component>(i * Component::group, 0);
    clearPadding<Position + 1>(row);
  }
}

// The components of a row from `Position` on and its elements. The best of several candidates is
// that with the least squared error of all numbers that share it.
template <int Position, class Row> __device__ void encodeRow(const Row &row, const Elements &to) {
  using Order = typename Row::Part::Order;
  if constexpr (Position == Order::size) {
    encodeElements(row, to);
  } else {
    using Component = Get<Position, Order>;
    if constexpr (Component::group == 0) {
      const Team<Row, threads> team(row, 0, row.k, static_cast<int>(threadIdx.x));
      const typename Component::Rule rule(row, team);
      constexpr int trials = Component::candidates > 1 ? Component::candidates : 0;
      __shared__ double error;
      double least = 0;
      int best = 0;
#pragma unroll 1
      for (int i = 0; i <= trials; ++i) {
        const bool tries = i < trials;
        if (threadIdx.x == 0)
          row.template store<Component>(0, Component::Type::encode(rule.value(tries ? i : best)));
        __syncthreads();
        encodeRow<Position + 1>(row, tries ? Elements{nullptr, 0, &error, row.k} : to);
        if (tries && (i == 0 || farOrNear(error) < least)) {
          best = i;
          least = farOrNear(error);
        }
        __syncthreads(); // read before the next one is summed
      }
    } else if constexpr (Component::candidates == 1) {
      encodeGroups<Component>(row);
      encodeRow<Position + 1>(row, to);
    } else {
      const Groups<Component, Row> groups(row);
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < groups.count; i += threads) {
        Trial<Row, Position> values{row, {}};
        const int begin = i * Component::group;
        double none = 0;
        encodeWithin<Position>(values, begin, min(begin + Component::group, row.k), true, none);
      }
      clearPadding<Position>(row);
      __syncthreads();
      encodeElements(row, to);
    }
  }
}
