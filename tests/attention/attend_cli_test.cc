// SPDX-License-Identifier: Apache-2.0
// `qkv attend` on the command line: results, exit statuses and messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "attention/arrays.h"
#include "qkv/array_file.h"

namespace qkv::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct Outcome {
  int status;
  std::string text;  // standard output and standard error
};

class Attend : public ::testing::Test {
 protected:
  Attend() {
    std::string pattern = (fs::temp_directory_path() / "qkv_attend_XXXXXX").string();
    folder = mkdtemp(pattern.data());
    put("q", random({2, 4, 3, 8}, 1));
    put("k", random({2, 2, 5, 8}, 2));
    put("v", random({2, 2, 5, 6}, 3));
    put("dout", random({2, 4, 3, 6}, 4));
  }
  ~Attend() override { fs::remove_all(folder); }

  void put(const std::string& name, const Tensor& array) { save_npy(file(name), array); }
  std::string file(const std::string& name) const { return folder + "/" + name + ".npy"; }
  Tensor result(const std::string& name) const { return load_npy(file(name)); }

  // NAME@ in the arguments is replaced by the path of that array's file.
  Outcome run(const std::string& arguments, bool with_arrays = true) const {
    std::string command = std::string(QKV_BINARY) + " attend ";
    if (with_arrays) command += "--q q@ --k k@ --v v@ --out out@ ";
    command += arguments + " 2>&1";
    for (std::size_t at; (at = command.find('@')) != std::string::npos;) {
      const std::size_t begin = command.rfind(' ', at) + 1;
      command.replace(begin, at - begin + 1, file(command.substr(begin, at - begin)));
    }
    Outcome outcome{0, ""};
    std::FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) outcome.text.append(buffer.data(), n);
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return outcome;
  }
  void expect_misuse(const std::string& arguments, const char* message) const {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.status, 2) << arguments;
    EXPECT_THAT(o.text, HasSubstr(message)) << arguments;
    EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << o.text;
    EXPECT_FALSE(fs::exists(file("out"))) << arguments;
  }
  void expect_failure(const std::string& arguments, const char* message) const {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.status, 1) << arguments;
    EXPECT_THAT(o.text, HasSubstr(message)) << arguments;
    EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << o.text;
    EXPECT_FALSE(fs::exists(file("out"))) << arguments;
  }

  std::string folder;
};

TEST_F(Attend, MatchesTheLibrary) {
  const Outcome o =
      run("--causal start --start=-1,2 --window=2,0 --softcap 3 --scale 0.7 --path reference --lse lse@ --probs probs@ "
          "--dout dout@ --dq dq@ --dk dk@ --dv dv@");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_EQ(o.text, "");
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::start;
  options.start = {-1, 2};
  options.window_left = 2;
  options.window_right = 0;
  options.softcap = 3;
  options.scale = 0.7;
  options.path = AttentionPath::reference;
  const Forward f = forward(result("q"), result("k"), result("v"), options);
  const Backward b = backward(result("q"), result("k"), result("v"), f, result("dout"), options);
  EXPECT_TRUE(same_bits(result("out"), f.out));
  EXPECT_TRUE(same_bits(result("lse"), f.lse));
  EXPECT_TRUE(same_bits(result("probs"), f.probs));
  EXPECT_TRUE(same_bits(result("dq"), b.dq));
  EXPECT_TRUE(same_bits(result("dk"), b.dk));
  EXPECT_TRUE(same_bits(result("dv"), b.dv));
}

TEST_F(Attend, MasksLengthsAlibiSinksAndTheirGradients) {
  put("mask", random({3, 5}, 5, DType::f64));
  put("sinks", random({4}, 6));
  put("slopes", make({4}, {0.5, 0.25, 0.1, 0}));
  put("lengths", make({2}, {0, 0}, DType::f32));
  Tensor lengths({2}, DType::i64);
  lengths.data<std::int64_t>()[0] = 3;
  lengths.data<std::int64_t>()[1] = 5;
  put("lengths", lengths);
  const Outcome o =
      run("--align bottom-right --alibi slopes@ --mask mask@ --sinks sinks@ --kv-lengths lengths@ --dtype f64 "
          "--dout dout@ --dmask dmask@ --dsinks dsinks@");
  EXPECT_EQ(o.status, 0) << o.text;
  const Tensor mask = result("mask"), sinks = result("sinks"), slopes = result("slopes");
  AttentionOptions options;
  options.alignment = Alignment::bottom_right;
  options.mask = mask;
  options.sinks = sinks;
  options.alibi_slopes = slopes;
  options.kv_lengths = {3, 5};
  const auto wide = [&](const char* name) { return converted(result(name), DType::f64); };
  const Tensor q = wide("q"), k = wide("k"), v = wide("v");
  const Forward f = forward(q, k, v, options);
  const Backward b = backward(q, k, v, f, wide("dout"), options);
  EXPECT_TRUE(same_bits(result("out"), f.out));
  EXPECT_TRUE(same_bits(result("dmask"), b.dmask));
  EXPECT_TRUE(same_bits(result("dsinks"), b.dsinks));
  EXPECT_EQ(to_string(result("dmask").shape()), "[3, 5]");
}

TEST_F(Attend, StorageTypesRoundTheInputs) {
  for (const char* type : {"bf16", "f16"}) {
    EXPECT_EQ(run(std::string("--path reference --dtype ") + type).status, 0);
    const auto narrow = [&](const char* name) { return converted(result(name), dtype_from_name(type)); };
    AttentionOptions options;
    options.path = AttentionPath::reference;
    EXPECT_EQ(result("out").dtype(), DType::f32);
    EXPECT_TRUE(same_bits(result("out"), forward(narrow("q"), narrow("k"), narrow("v"), options).out)) << type;
  }
}

TEST_F(Attend, ThreeAxesGetABatchOfOne) {
  put("q", random({4, 3, 8}, 1));
  put("k", random({4, 5, 8}, 2));
  put("v", random({4, 5, 6}, 3));
  EXPECT_EQ(run("").status, 0);
  EXPECT_EQ(to_string(result("out").shape()), "[1, 4, 3, 6]");
}

TEST_F(Attend, CausalNeedsNoAlignmentForEqualLengths) {
  put("k", random({2, 2, 3, 8}, 2));
  put("v", random({2, 2, 3, 6}, 3));
  for (const char* how : {"--causal", "--causal top_left", "--causal=bottom-right"}) {
    SCOPED_TRACE(how);
    EXPECT_EQ(run("--causal top-left").status, 0);
    const Tensor expected = result("out");
    EXPECT_EQ(run(how).status, 0);
    EXPECT_EQ(values(result("out")), values(expected));
  }
}

TEST_F(Attend, TracesTheSteps) {
  const Outcome o = run("--causal top-left --softcap 2 --trace " + folder + "/a/b");
  EXPECT_EQ(o.status, 0) << o.text;
  for (const char* step : {"scores", "softcapped", "masked", "probs"})
    EXPECT_EQ(to_string(load_npy(folder + "/a/b/" + step + ".npy").shape()), "[2, 4, 3, 5]");
  EXPECT_EQ(values(load_npy(folder + "/a/b/masked.npy"))[1], -INFINITY);
}

TEST_F(Attend, ConflictingOptionsAreUsageErrors) {
  put("mask", random({3, 5}, 5));
  put("bools", bool_mask({5}, {1, 1, 1, 0, 1}));
  put("four", random({4}, 6));
  expect_misuse("--window=1,1", "--window needs --causal or --align");
  expect_misuse("--alibi four@", "--alibi needs --causal or --align");
  expect_misuse("--start 3", "--start is used only by");
  expect_misuse("--causal top-left --start 3", "--start is used only by");
  expect_misuse("--causal start", "needs --start");
  expect_misuse("--align top-left", "--align is used only by");
  expect_misuse("--causal top-left --align top-left --window=1,1", "leave out --align");
  expect_misuse("--causal top-left --window=1", "--window expected LEFT,RIGHT");
  expect_misuse("--causal top-left --window=-2,1", "--window expected");
  expect_misuse("--causal start --start 1,x", "--start expected comma-separated integers");
  expect_misuse("--causal start --start=1,", "--start expected comma-separated integers");
  expect_misuse("--causal sideways", "--causal");
  expect_misuse("--causal", "--causal with 3 queries and 5 keys needs an alignment");
  expect_misuse("--dtype f8", "--dtype");
  expect_misuse("--path fast", "--path");
  expect_misuse("--path tiled --dtype f64", "--path tiled computes in float32");
  expect_misuse("--dq dq@", "need --dout");
  expect_misuse("--dout dout@", "--dout needs a gradient to write");
  expect_misuse("--dout dout@ --dmask dmask@", "--dmask needs --mask");
  expect_misuse("--dout dout@ --mask bools@ --dmask dmask@", "--dmask needs a floating mask");
  expect_misuse("--dout dout@ --dsinks dsinks@", "--dsinks needs --sinks");
  expect_misuse("--lse out@", "--out and --lse are the same file");
  expect_misuse("--lse q@", "would overwrite the input");
  expect_misuse("--softcap=-1", "--softcap expected");
  expect_misuse("--scale nan", "--scale expected a finite number");
  expect_misuse("--frobnicate", "frobnicate");
  EXPECT_EQ(run("--q q@", false).status, 2);
}

TEST_F(Attend, InvalidArraysAreErrors) {
  put("ints", make({2}, {1, 1}, DType::f32));
  put("mask", random({4, 5}, 5));
  expect_failure("--mask mask@", "[attention] mask must broadcast");
  expect_failure("--kv-lengths ints@", "[attend] --kv-lengths must be int64 [batch]; found f32 [2]");
  expect_failure("--mask nowhere@", "nowhere.npy");
  expect_failure("--causal start --start=1,2,3",
                 "[attention] start must have one position, or one per sequence (2); found 3");
  expect_failure("--causal start --start=-9 --require-readable-key", "none for query 0 of head 0 of sequence 0");
  expect_failure("--dout q@ --dq dq@", "[attention] dout must have the shape [2, 4, 3, 6]; found [2, 4, 3, 8]");
  put("k", random({2, 3, 5, 8}, 2));
  expect_failure("", "[attention] k and v must have the same number of heads");
  put("k", random({5, 8}, 2));
  expect_failure("", "[attend] --k must be floating [batch, heads, seq, dim]; found f32 [5, 8]");
}

TEST_F(Attend, HelpExplains) {
  const Outcome o = run("--help", false);
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, HasSubstr("Visible keys"));
  EXPECT_THAT(o.text, HasSubstr("Examples"));
}

}  // namespace
}  // namespace qkv::test
