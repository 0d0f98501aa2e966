// SPDX-License-Identifier: Apache-2.0
#include "qkv/kv_cache.h"
#include "qkv/attention_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "attention/arrays.h"
#include "qkv/error.h"

namespace qkv::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tokens first ... first + count of [batch, heads, tokens, d].
ConstView tokens(const Tensor& t, std::int64_t first, std::int64_t count) {
  ConstView v = t;
  v.data = static_cast<const char*>(v.data) + first * v.strides[2] * static_cast<std::int64_t>(dtype_size(v.dtype));
  v.shape[2] = count;
  return v;
}

Tensor numbers(const std::vector<double>& list) {
  return make({1, 1, static_cast<std::int64_t>(list.size()), 1}, list);
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

struct Sequence {
  Tensor q, k, v;
  AttentionOptions options;  // the options of attend()

  explicit Sequence(std::int64_t count, DType dtype = DType::f32)
      : q(random({2, 4, count, 24}, 1, dtype)),
        k(random({2, 2, count, 24}, 2, dtype)),
        v(random({2, 2, count, 16}, 3, dtype)) {}

  Forward whole() const {
    AttentionOptions all = options;
    all.causal = true;
    all.alignment = Alignment::top_left;
    return forward(q, k, v, all);
  }
};

// Appends the sequence in chunks and compares each chunk's output with the full pass, bit for bit.
void expect_same_as_whole(const Sequence& s, KvCache& cache, const std::vector<std::int64_t>& chunks) {
  const Forward whole = s.whole();
  std::int64_t read = 0;
  for (std::size_t n = 0; read < s.q.shape()[2]; ++n) {
    const std::int64_t count = std::min(chunks[n % chunks.size()], s.q.shape()[2] - read);
    cache.append(tokens(s.k, read, count), tokens(s.v, read, count));
    Tensor out({2, 4, count, 16}, whole.out.dtype()), lse({2, 4, count}, whole.out.dtype());
    cache.attend(tokens(s.q, read, count), s.options, {out, lse, {}});
    ConstView whole_lse = whole.lse;
    whole_lse.data = whole.lse.data() + read;
    whole_lse.shape[2] = count;
    ASSERT_TRUE(same_bits(out, tokens(whole.out, read, count))) << "after " << read << " tokens, " << count << " more";
    ASSERT_TRUE(same_bits(lse, whole_lse)) << "after " << read << " tokens, " << count << " more";
    read += count;
  }
}

class Decode : public ::testing::TestWithParam<AttentionPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, Decode, ::testing::ValuesIn(paths()));

TEST_P(Decode, TokenByTokenAndInChunksMatchesTheFullPassBitForBit) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(dtype_name(dtype));
    Sequence s(dtype == DType::f32 ? 330 : 150, dtype);
    s.options.path = GetParam();
    for (const std::vector<std::int64_t>& chunks :
         {std::vector<std::int64_t>{1}, {100, 1, 1}, {7, 64, 3, 48, 49}, {1000}}) {
      KvCache cache(2, 2, 24, 16, 330, 0, dtype);
      expect_same_as_whole(s, cache, chunks);
    }
  }
}

TEST_P(Decode, WithSoftcapAlibiSinksAndScale) {
  Sequence s(150);
  const Tensor slopes = make({4}, {0.5, 0.25, 0.125, 0.0625}), sinks = make({4}, {0.5, -1, 2, 0});
  s.options = {};
  s.options.alibi_slopes = slopes;
  s.options.sinks = sinks;
  s.options.softcap = 3;
  s.options.scale = 0.3;
  s.options.path = GetParam();
  KvCache cache(2, 2, 24, 16, 150);
  expect_same_as_whole(s, cache, {1, 2, 30});
}

TEST_P(Decode, RollingCacheMatchesAWindowMaskBitForBit) {
  for (std::int64_t window : {1, 2, 8, 64, 65, 100, 128, 129}) {
    for (std::int64_t spare : {0, 1, 30}) {
      SCOPED_TRACE(std::to_string(window) + " of " + std::to_string(window + spare));
      Sequence s(330);
      s.options.window_left = window - 1;
      s.options.path = GetParam();
      KvCache cache(2, 2, 24, 16, window + spare, window);
      expect_same_as_whole(s, cache, {1, spare + 1});
    }
  }
}

TEST(KvCache, KeepsTheNewestTokensOfAWindow) {
  // From a bug report elsewhere: window 8, six keys 10.0 ... 10.5, then 10.6 ... 10.9 one by one.
  KvCache cache(1, 1, 1, 1, 8, 8);
  const Tensor first = numbers({100, 101, 102, 103, 104, 105});
  cache.append(first, first);
  for (double x : {106, 107, 108, 109}) cache.append(numbers({x}), numbers({x}));
  EXPECT_THAT(values(cache.k()), ElementsAre(102, 103, 104, 105, 106, 107, 108, 109));
  EXPECT_EQ(cache.size(), 8);
  EXPECT_EQ(cache.first_key(), 2);
  const Tensor many = numbers({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  cache.append(many, many);  // exceeds the capacity: the newest stay
  EXPECT_THAT(values(cache.v()), ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(cache.first_key(), 12);
}

TEST(KvCache, RefusesQueriesWithDiscardedWindows) {
  KvCache cache(1, 1, 1, 1, 8, 8);
  const Tensor ten = numbers({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  cache.append(ten, ten);
  Tensor out({1, 1, 2, 1});
  EXPECT_THAT(error_of([&] {
                cache.attend(Tensor({1, 1, 2, 1}), {}, {out, {}, {}});
              }),
              HasSubstr("[kv_cache] q_len of at most 1 (queries whose windows are still cached); found 2"));
}

TEST(KvCache, RefusesMoreThanItsCapacity) {
  KvCache cache(1, 1, 1, 1, 8);
  const Tensor five = numbers({1, 2, 3, 4, 5});
  cache.append(five, five);
  EXPECT_EQ(error_of([&] { cache.append(five, five); }),
            "[kv_cache] space for 5 more tokens; found 5 cached with a capacity of 8");
  EXPECT_THAT(values(cache.k()), ElementsAre(1, 2, 3, 4, 5));  // unchanged
  const Tensor nine = numbers({1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(error_of([&] { KvCache(1, 1, 1, 1, 8).append(nine, nine); }), HasSubstr("0 cached with a capacity of 8"));
}

// B8 of the reports: values that a cache's type cannot represent are an error, and none of them is stored.
TEST(KvCache, RefusesNumbersThatItsTypeCannotRepresent) {
  struct Case {
    DType dtype;
    double fits, too_large;
    const char* says;
  };
  for (const Case& c : {Case{DType::f16, 65519, 65520, "type f16"}, Case{DType::f16, -65519, -1e9, "type f16"},
                        Case{DType::q8_0, 8.3e6, 8.4e6, "type q8_0"}, Case{DType::bf16, 3e38, 3.399e38, "type bf16"}}) {
    for (const bool window : {false, true}) {
      KvCache cache(1, 1, 1, 1, 4, window ? 4 : 0, c.dtype);
      const Tensor one = numbers({1}), fits = numbers({1, c.fits}), large = numbers({2, c.too_large});
      cache.append(fits, fits);
      EXPECT_TRUE(cache.finite());
      for (const bool keys : {true, false}) {
        try {
          cache.append(keys ? large : fits, keys ? fits : large);
          ADD_FAILURE() << c.says;
        } catch (const NonFiniteError& error) {
          EXPECT_THAT(error.what(), HasSubstr(c.says));
          EXPECT_THAT(error.what(), HasSubstr(keys ? "keys" : "values"));
        }
        EXPECT_EQ(cache.size(), 2);
        EXPECT_EQ(cache.first_key(), 0);
      }
      EXPECT_TRUE(cache.finite());
      cache.append(one, one);
      EXPECT_EQ(cache.size(), 3);
    }
  }
  KvCache cache(1, 1, 1, 1, 4, 0, DType::f32);  // NaN stays NaN
  cache.append(numbers({std::nan("")}), numbers({1}));
  EXPECT_FALSE(cache.finite());
}

TEST(KvCache, DiscardsTruncatesAndClears) {
  KvCache cache(1, 1, 1, 1, 5);
  const Tensor five = numbers({1, 2, 3, 4, 5}), six = numbers({6});
  cache.append(five, five);
  for (std::int64_t count : {-1, 6}) {
    EXPECT_EQ(error_of([&] { cache.discard_oldest(count); }),
              "[kv_cache] the number of tokens to discard must be from 0 to 5; found " + std::to_string(count));
    EXPECT_EQ(error_of([&] { cache.truncate(count); }),
              "[kv_cache] the size to keep must be from 0 to 5; found " + std::to_string(count));
  }
  EXPECT_EQ(cache.size(), 5);
  cache.discard_oldest(2);
  EXPECT_THAT(values(cache.k()), ElementsAre(3, 4, 5));
  EXPECT_EQ(cache.first_key(), 2);
  cache.append(six, six);  // into the freed space
  EXPECT_THAT(values(cache.k()), ElementsAre(3, 4, 5, 6));
  cache.truncate(2);
  EXPECT_THAT(values(cache.v()), ElementsAre(3, 4));
  EXPECT_EQ(cache.first_key(), 2);
  KvCache copy = cache;
  cache.clear();
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.first_key(), 0);
  EXPECT_THAT(values(copy.v()), ElementsAre(3, 4));  // a copy is independent
}

TEST(KvCache, SameBitsAfterTruncatingAndAppendingAgain) {
  const Sequence s(100);
  const Forward whole = s.whole();
  KvCache cache(2, 2, 24, 16, 100);
  cache.append(s.k, s.v);
  cache.truncate(70);
  cache.append(tokens(s.k, 70, 5), tokens(s.v, 70, 5));
  Tensor out({2, 4, 5, 16});
  cache.attend(tokens(s.q, 70, 5), s.options, {out, {}, {}});
  EXPECT_TRUE(same_bits(out, tokens(whole.out, 70, 5)));
}

TEST(KvCache, APrefixIsAnIndependentCacheWithTheSameBits) {
  const Sequence s(100);
  const Forward whole = s.whole();
  KvCache cache(2, 2, 24, 16, 400);
  cache.append(s.k, s.v);
  KvCache prefix = cache.prefix(70);
  EXPECT_EQ(prefix.size(), 70);
  EXPECT_EQ(prefix.memory_bytes(), 256 * prefix.bytes_per_token());
  cache.clear();
  prefix.append(tokens(s.k, 70, 30), tokens(s.v, 70, 30));
  Tensor out({2, 4, 30, 16});
  prefix.attend(tokens(s.q, 70, 30), s.options, {out, {}, {}});
  EXPECT_TRUE(same_bits(out, tokens(whole.out, 70, 30)));
  EXPECT_EQ(error_of([&] { prefix.prefix(101); }), "[kv_cache] a prefix of 0 to 100 tokens; found 101");
  prefix.discard_oldest(1);
  EXPECT_EQ(error_of([&] { prefix.prefix(1); }), "[kv_cache] a prefix of 0 to 0 tokens; found 1");
}

TEST(KvCache, AttendsToTheRestAfterDiscarding) {
  KvCache cache(1, 1, 1, 1, 8, 8);
  const Tensor five = numbers({1, 2, 3, 4, 5});
  cache.append(five, five);
  cache.discard_oldest(3);
  Tensor out({1, 1, 1, 1});
  cache.attend(Tensor({1, 1, 1, 1}), {}, {out, {}, {}});
  EXPECT_EQ(values(out)[0], 4.5);
}

TEST(KvCache, RoundsToItsType) {
  KvCache cache(1, 1, 1, 1, 2, 0, DType::bf16);
  const Tensor x = numbers({1.00390625});  // between two bf16 numbers
  cache.append(x, x);
  EXPECT_THAT(values(cache.k()), ElementsAre(1));
  Tensor out({1, 1, 1, 1});
  cache.attend(x, {}, {out, {}, {}});  // f32 queries on a bf16 cache
  EXPECT_EQ(values(out)[0], 1);
}

TEST(KvCache, AcceptsAnyLayout) {
  Tensor k = random({2, 5, 3, 4}, 1), v = random({2, 5, 3, 2}, 2);  // [batch, seq, heads, d]
  KvCache cache(2, 3, 4, 2, 5);
  cache.append(swap_axes(k.view(), 1, 2), swap_axes(v.view(), 1, 2));
  EXPECT_EQ(values(cache.k()), values(swap_axes(k.view(), 1, 2)));
  EXPECT_EQ(values(cache.v()), values(swap_axes(v.view(), 1, 2)));
}

TEST(KvCache, Misuse) {
  EXPECT_THAT(error_of([] { KvCache(1, 0, 1, 1, 1); }), HasSubstr("[kv_cache] n_kv_head must be at least 1; found 0"));
  EXPECT_THAT(error_of([] { KvCache(1, 1, 1, 1, 0); }), HasSubstr("capacity must be at least 1"));
  EXPECT_THAT(error_of([] { KvCache(1, 1, 1, 1, 4, 5); }),
              HasSubstr("window must be at most the capacity (4); found 5"));
  EXPECT_THAT(error_of([] { KvCache(1, 1, 1, 1, 4, 0, DType::i32); }), HasSubstr("the type must be f32"));
  KvCache cache(1, 1, 2, 1, 4);
  EXPECT_THAT(error_of([&] {
                cache.append(Tensor({1, 1, 1, 3}), Tensor({1, 1, 1, 1}));
              }),
              HasSubstr("k must have the shape [1, 1, 1, 2]; found [1, 1, 1, 3]"));
  EXPECT_THAT(error_of([&] {
                cache.append(Tensor({1, 1, 1, 2}), Tensor({1, 1, 2, 1}));
              }),
              HasSubstr("v must have the shape [1, 1, 1, 1]; found [1, 1, 2, 1]"));
  EXPECT_EQ(cache.size(), 0);
  Tensor out({1, 1, 1, 1});
  const auto attend = [&](const AttentionOptions& options) {
    return error_of([&] { cache.attend(Tensor({1, 1, 1, 2}), options, {out, {}, {}}); });
  };
  EXPECT_THAT(attend({}), HasSubstr("q_len of at most 0 (the number of cached tokens); found 1"));
  cache.append(Tensor({1, 1, 1, 2}), Tensor({1, 1, 1, 1}));
  EXPECT_EQ(attend({}), "no error");
  AttentionOptions options;
  options.causal = true;
  EXPECT_THAT(attend(options), HasSubstr("only scale, softcap, window_left, alibi_slopes, sinks and path"));
  options = {};
  options.kv_lengths = {1};
  EXPECT_THAT(attend(options), HasSubstr("found kv_lengths"));
  options = {};
  options.first_key = 1;
  EXPECT_THAT(attend(options), HasSubstr("found first_key"));
  options = {};
  options.dropout.p = 0.5;
  EXPECT_THAT(attend(options), HasSubstr("found dropout"));
}

// A cache allocates memory as it fills; its contents move without changing a bit.
TEST(KvCache, GrowsAsItFills) {
  const Sequence s(900);
  for (const std::vector<std::int64_t>& chunks :
       std::vector<std::vector<std::int64_t>>{{900}, {256, 1, 643}, {1, 255, 300, 2, 342}}) {
    KvCache cache(2, 2, 24, 16, 900);
    expect_same_as_whole(s, cache, chunks);
    EXPECT_THAT(error_of([&] { cache.append(tokens(s.k, 0, 1), tokens(s.v, 0, 1)); }), HasSubstr("900 cached"));
    EXPECT_EQ(cache.size(), 900);
  }
}

// The number of members of an aggregate.
struct Anything {
  template <class T>
  operator T() const;
};
template <class T, class... Values>
constexpr int member_count() {
  if constexpr (requires { T{Values{}..., Anything{}}; })
    return member_count<T, Values..., Anything>();
  else
    return sizeof...(Values);
}

TEST(AttentionOptions, AreAllListed) {
  AttentionOptions options;
  int listed = 0;
  for_each_option([&](const OptionText&, const auto&) { ++listed; }, options);
  EXPECT_EQ(listed + 2, member_count<AttentionOptions>());  // first_key and path are in neither list
}

TEST(KvCache, BlockTypesHaveBlockViews) {
  const Sequence s(70);
  KvCache cache(2, 2, 24, 16, 600, 0, DType::q8_0);
  cache.append(tokens(s.k, 0, 70), tokens(s.v, 0, 70));
  cache.discard_oldest(3);
  const ConstView k = cache.k(), v = cache.v(), q = tokens(s.q, 60, 10);
  EXPECT_EQ(k.dtype, DType::q8_0);
  EXPECT_EQ(k.shape, (Dims{2, 2, 67, 24}));
  EXPECT_EQ(v.shape, (Dims{2, 2, 67, 16}));
  EXPECT_EQ(k.strides[2], 32);
  EXPECT_EQ(cache.query_dtype(), DType::f32);
  // attention() accepts such views as keys and values, forward only.
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::bottom_right;
  options.first_key = cache.first_key();
  Tensor expected({2, 4, 10, 16}), lse({2, 4, 10}), dq(q.shape);
  cache.attend(q, {}, {.out = expected, .lse = lse, .probs = {}});
  EXPECT_EQ(values(attention(q, k, v, options)), values(expected));
  AttentionGradients gradients;
  gradients.dq = dq;
  EXPECT_THAT(error_of([&] { attention_backward(q, k, v, expected, lse, expected, options, gradients); }),
              HasSubstr("gradients need floating k and v; found q8_0"));
  ConstView torn = k;
  torn.strides[2] = 24;
  EXPECT_THAT(error_of([&] { attention(q, torn, v, options); }), HasSubstr("rows of whole blocks"));
  EXPECT_THAT(error_of([&] { attention(q, k, tokens(s.v, 3, 67), options); }), HasSubstr("must have the same type"));
}

TEST(KvCache, GrowsAfterDiscardingAndWhenRestored) {
  const Sequence s(600);
  for (const DType type : {DType::f32, DType::q8_0}) {
    KvCache cache(2, 2, 24, 16, 600, 0, type);
    cache.append(tokens(s.k, 0, 250), tokens(s.v, 0, 250));
    cache.discard_oldest(100);
    cache.append(tokens(s.k, 250, 350), tokens(s.v, 250, 350));
    KvCache whole(2, 2, 24, 16, 600, 0, type);
    whole.append(tokens(s.k, 0, 600), tokens(s.v, 0, 600));
    whole.discard_oldest(100);
    const auto bytes_of = [](const KvCache& c) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(c.size()) * c.bytes_per_token());
      c.save(bytes.data());
      return bytes;
    };
    EXPECT_EQ(cache.first_key(), 100);
    EXPECT_EQ(bytes_of(cache), bytes_of(whole));
    KvCache restored(2, 2, 24, 16, 600, 0, type);
    const std::vector<std::byte> bytes = bytes_of(whole);
    restored.restore(bytes.data(), whole.size());
    EXPECT_EQ(bytes_of(restored), bytes);
  }
}

}  // namespace
}  // namespace qkv::test
