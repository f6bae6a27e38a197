// The base protocol of language servers: messages with a header that says how long they are.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace rho::tool::lsp {

// Bytes of a message: a source file of the largest size with every byte escaped, and some.
inline constexpr size_t maxMessageBytes = size_t(16) << 20;

class Connection {
public:
  enum class Outcome {
    Message,
    End,       // of the stream, also in the middle of a message
    TooLarge,  // the message was skipped
    BadHeader, // without a length nothing says where the next message begins
  };

  Connection(std::FILE *in, std::FILE *out) : in(in), out(out) {}
  Outcome read(std::string &message);
  // False when nobody reads.
  bool write(std::string_view message);

private:
  std::FILE *in, *out;
};

} // namespace rho::tool::lsp
