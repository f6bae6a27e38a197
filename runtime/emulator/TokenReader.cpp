#include "runtime/emulator/TokenReader.h"

#include <bit>
#include <charconv>

namespace rho::emulator {

std::string TokenReader::quoted(const Token &token) {
  if (token.kind == Kind::End)
    return "the end of the text";
  return "`" + std::string(token.text.substr(0, 60)) + "`";
}

void TokenReader::fail(uint32_t line, const std::string &found, const std::string &expected) {
  if (!failed)
    failed = makeError(DiagId::emulator_syntax, {std::to_string(line), found, expected});
}

bool TokenReader::accept(char c) {
  if (!peek().is(c))
    return false;
  next();
  return true;
}

bool TokenReader::accept(std::string_view dotWord) {
  if (peek().kind != Kind::DotWord || peek().text != dotWord)
    return false;
  next();
  return true;
}

bool TokenReader::expect(char c) {
  if (failed || accept(c))
    return !failed;
  fail(std::string("`") + c + "`");
  return false;
}

std::string_view TokenReader::word(const char *what) {
  if (peek().kind == Kind::Word)
    return next().text;
  fail(what);
  return {};
}

bool TokenReader::digits(std::string_view s, int base, uint64_t &value) {
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  return error == std::errc() && end == s.data() + s.size() && !s.empty();
}

// Integer, Single or Double, without a sign.
bool TokenReader::number(Operand &out) {
  std::string_view s = peek().text;
  uint64_t value = 0;
  bool good = false;
  out.kind = Operand::Kind::Integer;
  auto prefixed = [&](char lower) { return s.size() > 1 && s[0] == '0' && (s[1] | 32) == lower; };
  if (prefixed('f') && s.size() == 10) {
    out.kind = Operand::Kind::Single;
    good = digits(s.substr(2), 16, value);
  } else if (prefixed('d') && s.size() == 18) {
    out.kind = Operand::Kind::Double;
    good = digits(s.substr(2), 16, value);
  } else if (s.find('.') != std::string_view::npos) {
    out.kind = Operand::Kind::Double;
    double parsed = 0;
    auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), parsed);
    good = error == std::errc() && end == s.data() + s.size();
    value = std::bit_cast<uint64_t>(parsed);
  } else {
    if (s.back() == 'U')
      s.remove_suffix(1);
    if (prefixed('x'))
      good = digits(s.substr(2), 16, value);
    else if (prefixed('b'))
      good = digits(s.substr(2), 2, value);
    else if (s.size() > 1 && s[0] == '0')
      good = digits(s.substr(1), 8, value);
    else
      good = digits(s, 10, value);
  }
  if (!good) {
    fail("a number");
    return false;
  }
  next();
  out.value = value;
  return true;
}

bool TokenReader::signedNumber(Operand &out) {
  bool minus = accept('-');
  if (!minus)
    accept('+');
  if (peek().kind != Kind::Number) {
    fail("a number");
    return false;
  }
  if (!number(out))
    return false;
  if (minus) {
    if (out.kind == Operand::Kind::Integer)
      out.value = 0 - out.value;
    else
      out.value ^= out.kind == Operand::Kind::Single ? 0x80000000u : uint64_t(1) << 63;
  }
  return true;
}

uint64_t TokenReader::count(const char *what, uint64_t limit) {
  Operand value;
  uint32_t line = peek().line;
  std::string found = quoted(peek());
  if (peek().kind != Kind::Number) {
    fail(what);
    return 0;
  }
  if (!number(value))
    return 0;
  if (value.kind != Operand::Kind::Integer || value.value > limit) {
    fail(line, found, std::string(what) + " up to " + std::to_string(limit));
    return 0;
  }
  return value.value;
}

} // namespace rho::emulator
