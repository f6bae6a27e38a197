// What tests of decodes share: words with a code among noise, parameters of a row, and what comes
// out.
#pragma once

#include "compiler/decode/Sequences.h"
#include "dsl/Evaluate.h"

#include <cmath>
#include <random>
#include <vector>

namespace rho::compiler {

// Sub-element s of an operand register as a number.
inline double subElement(uint32_t reg, size_t s, const std::string &mmaType) {
  dsl::ElementType type = dsl::ElementType::get(mmaType);
  return type.decode((reg >> (static_cast<int>(s) * type.bits())) & ((1u << type.bits()) - 1));
}

// Words of a unit with `code` at sub-element s of register r and noise elsewhere.
inline std::vector<uint32_t> wordsWith(uint32_t code, const DecodeSequence &decode, size_t r,
                                       size_t s, std::mt19937 &random) {
  std::vector<uint32_t> words;
  size_t bits = decode.bits[r][s].size();
  for (size_t i = 0; i < decode.codes * bits / 32; ++i)
    words.push_back(random());
  for (size_t b = 0; b < bits; ++b) {
    CodeBit at = decode.bits[r][s][b];
    uint32_t &word = words[static_cast<size_t>(at.word)];
    word = (word & ~(1U << at.bit)) | (code >> b & 1) << at.bit;
  }
  return words;
}

// Where lane 13 of a warp reads in a table of pairs, without the codes.
inline uint32_t placeInTables(uint32_t table) {
  return 4 * 13 + table % 2 * DecodeProgram::pairBytes + table / 2 * DecodeProgram::tableStride;
}

// Operand registers' parameters for given codes of the other components.
inline uint32_t parameterOf(const DecodeParam &param, const dsl::Format &format,
                            const std::vector<uint32_t> &codes, const std::string &mmaType) {
  if (param.form == DecodeParam::Form::Byte)
    return codes[static_cast<size_t>(param.component)];
  if (param.form == DecodeParam::Form::Places) // above them anything
    return 0xa5a57650U | codes[static_cast<size_t>(param.component)];
  if (param.form == DecodeParam::Form::PairsBegin)
    return 0;
  if (param.form == DecodeParam::Form::Pairs)
    return placeInTables(codes[static_cast<size_t>(param.number.fewChoices(format))]);
  if (param.form == DecodeParam::Form::Bytes)
    return codes[static_cast<size_t>(param.component)] * 0x01010101u;
  if (param.form == DecodeParam::Form::Choices) {
    uint32_t bytes = 0;
    int selector = param.number.fewChoices(format);
    for (uint32_t code = 0; code < 4; ++code) {
      std::vector<uint32_t> chosen = codes;
      chosen[static_cast<size_t>(selector)] = code;
      DecodeParam number{DecodeParam::Form::Number, 0, 0, param.number};
      bytes |= (parameterOf(number, format, chosen, mmaType) & 0xff) << (8 * code);
    }
    return bytes;
  }
  double sum = 0;
  for (const RowNumber::Term &term : param.number.terms) {
    if (term.selector != 0 &&
        static_cast<int>(codes[static_cast<size_t>(term.selector)]) != term.code)
      continue;
    double product = term.factor;
    for (int component : term.components)
      product *= format.components[static_cast<size_t>(component)].type.decode(
          codes[static_cast<size_t>(component)]);
    sum += product;
  }
  uint32_t code = dsl::ElementType::get(numberType(mmaType)).encode(sum);
  return code | code << 16;
}

// All parameters of a decode.
inline std::vector<uint32_t> parametersOf(const DecodeSequence &decode, const dsl::Format &format,
                                          const std::vector<uint32_t> &codes,
                                          const std::string &mmaType) {
  std::vector<uint32_t> params;
  for (const DecodeParam &param : decode.params)
    params.push_back(parameterOf(param, format, codes, mmaType));
  return params;
}

// `check(number)` for what a decode makes of a stored code in each place, with noise in the others.
template <class Check>
void decodeInEachPlace(const DecodeSequence &decode, uint32_t stored,
                       const std::vector<uint32_t> &params, const std::string &mmaType,
                       std::mt19937 &random, const Check &check) {
  for (size_t r = 0; r < decode.registers(); ++r)
    for (size_t s = 0; s < decode.perRegister(); ++s) {
      const std::vector<uint32_t> words = wordsWith(stored, decode, r, s, random);
      check(subElement(decode.program.run(words, params)[r], s, mmaType));
    }
}

} // namespace rho::compiler
