// SPDX-License-Identifier: Apache-2.0
// Parses and prints shapes such as 1x12x1024x64:kv=4.
#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "bench_case.h"
#include "output.h"

namespace qkv::cli {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 24;  // per dimension
constexpr double kMaxElements = 1e10;                     // per array

[[noreturn]] void fail(const std::string& text, const std::string& reason) {
  throw UsageError("a shape is BxHxTxD[:kv=N][:k=LEN][:dv=N][:window=N][:causal|:full]; " + reason + " in '" + text +
                   "'");
}

std::int64_t number(const std::string& text, std::string_view digits, std::int64_t least = 1) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stopped != end || value < least || value > kLargest)
    fail(text, fmt::format("'{}' is not a number from {} to {}", digits, least, kLargest));
  return value;
}

// Removes and returns the text up to `separator`, which is removed too.
std::string_view take(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view head = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return head;
}

void set_suffix(const std::string& text, std::string_view suffix, AttentionCase& sizes) {
  if (suffix == "causal" || suffix == "full") {
    sizes.causal = suffix == "causal";
    return;
  }
  std::string_view rest = suffix;
  const std::string_view name = take(rest, '=');
  if (name == "kv") {
    sizes.n_kv_head = number(text, rest);
  } else if (name == "k") {
    sizes.kv_len = number(text, rest);
  } else if (name == "dv") {
    sizes.d_v = number(text, rest);
  } else if (name == "window") {
    sizes.window = number(text, rest, 0);
  } else {
    fail(text, fmt::format("unknown suffix '{}'", suffix));
  }
}

}  // namespace

AttentionCase parse_shape(const std::string& text, const AttentionCase& defaults) {
  AttentionCase sizes = defaults;
  std::string_view suffixes = text;
  std::string_view plain = take(suffixes, ':');
  std::int64_t* const places[] = {&sizes.batch, &sizes.n_head, &sizes.q_len, &sizes.d_k};
  for (std::int64_t* place : places) {
    if (plain.empty()) fail(text, "four numbers are required");
    *place = number(text, take(plain, 'x'));
  }
  if (!plain.empty()) fail(text, "four numbers are required");
  if (text.back() == ':') fail(text, "nothing follows the last colon");
  sizes.n_kv_head = sizes.n_head;
  sizes.kv_len = sizes.q_len;
  sizes.d_v = sizes.d_k;
  while (!suffixes.empty()) set_suffix(text, take(suffixes, ':'), sizes);
  if (sizes.n_head % sizes.n_kv_head != 0) fail(text, "the query heads are not a multiple of the key heads");
  const auto large = [&](std::int64_t heads, std::int64_t length, std::int64_t d) {
    return static_cast<double>(sizes.batch) * static_cast<double>(heads) * static_cast<double>(length) *
               static_cast<double>(d) >
           kMaxElements;
  };
  if (large(sizes.n_head, sizes.q_len, std::max(sizes.d_k, sizes.d_v)) ||
      large(sizes.n_kv_head, sizes.kv_len, std::max(sizes.d_k, sizes.d_v)))
    fail(text, "an array has more than 1e10 elements");
  return sizes;
}

std::string AttentionCase::shape_text() const {
  std::string text = fmt::format("{}x{}x{}x{}", batch, n_head, q_len, d_k);
  if (n_kv_head != n_head) text += fmt::format(":kv={}", n_kv_head);
  if (kv_len != q_len) text += fmt::format(":k={}", kv_len);
  if (d_v != d_k) text += fmt::format(":dv={}", d_v);
  return text;
}

std::string AttentionCase::mask_text() const {
  std::string text = causal ? "causal" : "full";
  if (window > 0) text += fmt::format(" window {}", window);
  return text;
}

}  // namespace qkv::cli
