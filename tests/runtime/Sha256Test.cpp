#include "runtime/cache/Sha256.h"

#include <gtest/gtest.h>

namespace rho::cache {
namespace {

// FIPS 180-4 examples and the NIST CAVP set's empty message.
TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesHashAsTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += static_cast<char>(i * 7);
  for (size_t cut : {1U, 55U, 56U, 63U, 64U, 65U, 128U, 299U}) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut));
    hash.update(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.finish(), sha256(text)) << cut;
  }
}

TEST(Sha256, FieldsKeepTheirBorders) {
  auto hashOf = [](std::string_view a, std::string_view b) {
    Sha256 hash;
    hash.field(a);
    hash.field(b);
    return hash.finish();
  };
  EXPECT_NE(hashOf("ab", "c"), hashOf("a", "bc"));
}

} // namespace
} // namespace rho::cache
