// SPDX-License-Identifier: Apache-2.0
// qkv bench on tiny shapes: the fields of a line, operation counts, and that wrong results are not timed. Nothing here
// depends on speed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "process.h"

namespace {

using nlohmann::json;
using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

std::vector<json> lines_of(const Finished& finished) {
  std::vector<json> lines;
  std::istringstream text(finished.out);
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<json> bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "attention", "--json", "--reps", "1", "--memory-mb", "1"});
  const Finished finished = run_qkv(arguments);
  EXPECT_EQ(finished.status, 0) << finished.err;
  return lines_of(finished);
}

double operations(const json& line) { return line["ms"].get<double>() * line["gflops"].get<double>() * 1e6; }

TEST(BenchCommand, PeakHasThreeCeilings) {
  const Finished finished = run_qkv({"bench", "peak", "--json", "--reps", "1", "--memory-mb", "1", "-t", "1"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const auto lines = lines_of(finished);
  ASSERT_EQ(lines.size(), 3);
  for (const int i : {0, 1}) {
    EXPECT_EQ(lines[i]["ceiling"], i == 0 ? "f32" : "bf16");
    EXPECT_EQ(lines[i]["threads"], 1);
    EXPECT_GT(lines[i]["gflops"], 0);
    EXPECT_GT(lines[i]["theoretical_gflops"], 0);
  }
  EXPECT_EQ(lines[2]["ceiling"], "read");
  EXPECT_GT(lines[2]["gb_per_s"], 0);
  EXPECT_GE(lines[2]["bytes"], 1 << 20);
  const Finished text = run_qkv({"bench", "peak", "--reps", "1", "--memory-mb", "1"});
  EXPECT_THAT(text.out, HasSubstr("bf16"));
  EXPECT_THAT(text.out, HasSubstr("GHz"));
  EXPECT_THAT(text.out, HasSubstr("GB/s"));
}

TEST(BenchCommand, LinesHaveTheDocumentedKeys) {
  const auto lines = bench({"--shapes", "2x4x70x24:kv=2", "-t", "2"});
  ASSERT_EQ(lines.size(), 4);  // forward and backward, f32 and bf16
  const char* passes[] = {"forward", "forward", "backward", "backward"};
  for (std::size_t i = 0; i < 4; ++i) {
    const json& line = lines[i];
    for (const char* key : {"pass", "dtype", "batch", "n_head", "n_kv_head", "q_len", "kv_len", "head_dim", "causal",
                            "window", "kernels", "threads", "ms", "gflops", "peak_gflops", "fraction", "max_error"})
      EXPECT_TRUE(line.contains(key)) << key;
    EXPECT_EQ(line["pass"], passes[i]);
    EXPECT_EQ(line["dtype"], i % 2 == 0 ? "f32" : "bf16");
    EXPECT_EQ(line["batch"], 2);
    EXPECT_EQ(line["n_head"], 4);
    EXPECT_EQ(line["n_kv_head"], 2);
    EXPECT_EQ(line["q_len"], 70);
    EXPECT_EQ(line["kv_len"], 70);
    EXPECT_EQ(line["head_dim"], 24);
    EXPECT_EQ(line["causal"], true);
    EXPECT_EQ(line["window"], 0);
    EXPECT_EQ(line["threads"], 2);
    EXPECT_GT(line["ms"], 0);
    EXPECT_DOUBLE_EQ(line["fraction"], line["gflops"].get<double>() / line["peak_gflops"].get<double>());
    EXPECT_GT(line["max_error"], 0);
    EXPECT_LT(line["max_error"], i % 2 == 0 ? 1e-4 : 0.2);
  }
}

TEST(BenchCommand, CountsOnlyOperationsThatTheMaskNeeds) {
  // 4 x D per pair forward, 2.5 x that backward; pairs counted one by one, with the last query at the last key.
  struct Case {
    const char* shape;
    int batch, heads, queries, keys, d, window;
    bool causal;
  };
  const Case cases[] = {{"1x2x7x8", 1, 2, 7, 7, 8, 0, true},
                        {"1x2x7x8:full", 1, 2, 7, 7, 8, 0, false},
                        {"2x4x9x8:kv=2:k=13", 2, 4, 9, 13, 8, 0, true},
                        {"2x4x9x8:kv=2:k=13:window=4", 2, 4, 9, 13, 8, 4, true},
                        {"1x1x12x16:k=20:window=3:full", 1, 1, 12, 20, 16, 3, false},
                        {"1x3x90x16:window=70", 1, 3, 90, 90, 16, 70, true}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.shape);
    double pairs = 0;
    for (int i = 0; i < c.queries; ++i)
      for (int j = 0; j < c.keys; ++j) {
        const int position = c.keys - c.queries + i;
        if (c.causal && j > position) continue;
        if (c.window > 0 && (j <= position - c.window || j >= position + c.window)) continue;
        ++pairs;
      }
    const double forward = pairs * c.batch * c.heads * 4 * c.d;
    const auto lines = bench({"--shapes", c.shape, "--dtype", "f32", "--pass", "forward,backward"});
    ASSERT_EQ(lines.size(), 2);
    EXPECT_NEAR(operations(lines[0]), forward, forward * 1e-9);
    EXPECT_NEAR(operations(lines[1]), forward * 2.5, forward * 1e-8);
    EXPECT_EQ(lines[0]["window"], c.window);
    EXPECT_EQ(lines[0].contains("time_over_share"), c.window > 0);
  }
}

TEST(BenchCommand, CountsADifferentValueSize) {
  const auto lines = bench({"--shapes", "1x2x7x8:dv=24:full", "--dtype", "f32"});
  ASSERT_EQ(lines.size(), 2);
  EXPECT_NEAR(operations(lines[0]), 2 * 49 * 2 * (8 + 24), 1e-3);
  EXPECT_NEAR(operations(lines[1]), 2 * 49 * 2 * (3 * 8 + 2 * 24), 1e-3);
  EXPECT_EQ(lines[0]["v_head_dim"], 24);
}

TEST(BenchCommand, OptionsForAllShapes) {
  const auto lines = bench({"--shapes", "1x1x6x8,1x1x5x8:causal", "--no-causal", "--window", "2", "--dtype", "bf16,f16",
                            "--pass", "forward"});
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0]["causal"], false);
  EXPECT_EQ(lines[2]["causal"], true);
  EXPECT_EQ(lines[3]["dtype"], "f16");
  for (const json& line : lines) EXPECT_EQ(line["window"], 2);
}

TEST(BenchCommand, DecodeReadsEveryKeyAndValue) {
  const auto lines = bench({"--shapes", "2x4x1x8:kv=2:k=700,1x2x3x8:k=40:window=5", "--pass", "decode"});
  ASSERT_EQ(lines.size(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const json& line = lines[i];
    for (const char* key : {"gb_per_s", "read_gb_per_s", "fraction", "max_error", "ms", "kernels"})
      EXPECT_TRUE(line.contains(key)) << key;
    EXPECT_EQ(line["pass"], "decode");
    // A window of 5: 3 queries see 7 keys.
    const double elements = i < 2 ? 2 * 2 * 700 * 16 : 1 * 2 * 7 * 16;
    const double bytes = elements * (i % 2 == 0 ? 4 : 2);
    EXPECT_NEAR(line["gb_per_s"].get<double>() * line["ms"].get<double>() * 1e6, bytes, bytes * 1e-9);
    EXPECT_DOUBLE_EQ(line["fraction"], line["gb_per_s"].get<double>() / line["read_gb_per_s"].get<double>());
  }
  // A single query over many keys uses decode by default.
  EXPECT_EQ(bench({"--shapes", "1x2x1x8:k=16", "--dtype", "f32"})[0]["pass"], "decode");
}

TEST(BenchCommand, WrongResultsAreNotTimed) {
  // bf16 cannot be this close to f64.
  for (const char* shape : {"1x2x70x16", "1x2x1x16:k=300"}) {
    const Finished finished = run_qkv(
        {"bench", "attention", "--shapes", shape, "--dtype", "bf16", "--limit", "1e-6", "--memory-mb", "1", "--json"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.out, "");
    EXPECT_THAT(finished.err, HasSubstr("wrong result, not timed"));
  }
}

TEST(BenchCommand, UsesForcedKernels) {
  const Finished finished =
      qkv_test::run_shell("QKV_KERNELS=portable $QKV bench attention --shapes 1x2x70x16 --reps 1 --json");
  ASSERT_EQ(finished.status, 0) << finished.err;
  for (const json& line : lines_of(finished)) EXPECT_EQ(line["kernels"], "portable");
  const Finished unknown = qkv_test::run_shell("QKV_KERNELS=abacus $QKV bench attention --shapes 1x2x70x16");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_EQ(unknown.out, "");
}

TEST(BenchCommand, UsageErrorsAreStatusTwo) {
  const std::vector<std::vector<std::string>> misuses = {
      {"bench"},
      {"bench", "lunch"},
      {"bench", "peak", "--reps", "0"},
      {"bench", "attention", "--shapes", ""},
      {"bench", "attention", "--shapes", "1x2x3"},
      {"bench", "attention", "--shapes", "1x2x3x4x5"},
      {"bench", "attention", "--shapes", "1x2x3x"},
      {"bench", "attention", "--shapes", "axbxcxd"},
      {"bench", "attention", "--shapes", "1x0x3x4"},
      {"bench", "attention", "--shapes", "1x-2x3x4"},
      {"bench", "attention", "--shapes", "1x2x3x4:"},
      {"bench", "attention", "--shapes", "1x2x3x4:kv"},
      {"bench", "attention", "--shapes", "1x2x3x4:kv="},
      {"bench", "attention", "--shapes", "1x2x3x4:kv=0"},
      {"bench", "attention", "--shapes", "1x3x3x4:kv=2"},
      {"bench", "attention", "--shapes", "1x2x3x4:k=1e3"},
      {"bench", "attention", "--shapes", "1x2x3x4:z=1"},
      {"bench", "attention", "--shapes", "1x2x3x4,"},
      {"bench", "attention", "--shapes", "1x2x3x99999999999999999999"},
      {"bench", "attention", "--shapes", "16777216x16777216x16777216x16777216"},
      {"bench", "attention", "--shapes", "1x2x3x4", "--pass", "sideways"},
      {"bench", "attention", "--shapes", "1x2x3x4", "--dtype", "f64"},
      {"bench", "attention", "--shapes", "1x2x3x4", "--window", "-1"},
      {"bench", "attention", "--shapes", "1x2x3x4", "--causal", "--no-causal"},
      {"bench", "attention", "--shapes", "1x2x9x4:k=3", "--pass", "decode", "--memory-mb", "1"},
      {"bench", "attention", "--no-causal"},
      {"bench", "attention", "--check"},
      {"bench", "attention", "--matrix", "--pass", "decode"},
      {"bench", "attention", "--matrix", "--shapes", "1x2x3x4,1x2x3x5"},
  };
  for (const auto& arguments : misuses) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Finished finished = run_qkv(arguments);
    EXPECT_EQ(finished.status, 2) << finished.err;
    EXPECT_THAT(finished.out, testing::Not(HasSubstr("GFLOP/s")));
  }
}

TEST(BenchCommand, MatrixHasEveryOptionAndMarksSlowOnes) {
  for (const char* pass : {"forward", "backward"}) {
    const Finished finished = run_qkv({"bench", "attention", "--matrix", "--check", "--json", "--shapes", "2x2x33x16",
                                       "--pass", pass, "--dtype", "f32", "--reps", "1"});
    const auto lines = lines_of(finished);
    bool slow = false;
    std::string names;
    for (const json& line : lines) {
      names += line["variant"].get<std::string>() + "\n";
      slow |= line["ratio"].get<double>() < 0.6;
      EXPECT_DOUBLE_EQ(line["ratio"], line["gflops"].get<double>() / line["plain_gflops"].get<double>());
    }
    EXPECT_EQ(finished.status, slow ? 1 : 0) << finished.err;
    for (const char* name : {"causal", "window", "lengths", "softcap", "ALiBi", "sinks", "one key head", "d_v",
                             "[batch, seq, heads, d]", "f16 storage", "bool mask [1, 1, q, k]",
                             "additive mask [b, h, q, k]", "head size 16", "head size 80", "head size 256"})
      EXPECT_THAT(names, HasSubstr(name));
    for (const char* name : {"dmask [1, 1, q, k]", "dsinks"})
      EXPECT_EQ(names.find(name) != std::string::npos, std::string(pass) == "backward") << name;
  }
}

TEST(BenchCommand, HelpExplainsShapesAndFigures) {
  const Finished finished = run_qkv({"bench", "attention", "--help"});
  EXPECT_EQ(finished.status, 0);
  for (const char* text : {"BxHxTxD", ":kv=N", "of peak", "max error", "--matrix", "qkv bench attention --shapes"})
    EXPECT_THAT(finished.out, HasSubstr(text));
  EXPECT_THAT(run_qkv({"bench", "peak", "--help"}).out, HasSubstr("frequency"));
}

TEST(BenchCommand, GenerateReportsSpeedAndTraffic) {
  const Finished finished =
      run_qkv({"bench",       "generate", "--preset", "andrea-12m", "-p", "16",           "-n",   "3",       "--reps",
               "2",           "--depth",  "5",        "--batch",    "2",  "--cache-type", "q8_0", "--dtype", "bf16",
               "--memory-mb", "1",        "--json",   "-t",         "2"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const auto lines = lines_of(finished);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0]["test"], "pp16");
  EXPECT_EQ(lines[1]["test"], "tg3");
  for (const json& line : lines) {
    EXPECT_EQ(line["compute_dtype"], "bf16");
    EXPECT_EQ(line["cache_type"], "q8_0");
    EXPECT_EQ(line["batch"], 2);
    EXPECT_EQ(line["depth"], 5);
    EXPECT_GT(line["tokens_per_s"], 0);
    EXPECT_GT(line["fraction"], 0);
  }
  EXPECT_GT(lines[1]["gb_per_s"], 0);
  const Finished text =
      run_qkv({"bench", "generate", "--preset", "andrea-12m", "-p", "4", "-n", "2", "--reps", "1", "--memory-mb", "1"});
  EXPECT_THAT(text.out, HasSubstr("tokens/s"));
  EXPECT_THAT(text.out, HasSubstr("GB/s"));
}

TEST(BenchCommand, GenerateChecksBits) {
  const Finished finished = run_qkv({"bench", "generate", "--preset", "andrea-12m", "-p", "12", "--check-bits"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("12 tokens: 48 evaluations gave the same"));
}

TEST(BenchCommand, GenerateRefusesInvalidOptions) {
  const Finished full = run_qkv({"bench", "generate", "--preset", "andrea-12m", "--depth", "1000000"});
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.err, HasSubstr("too small for --depth"));
  EXPECT_EQ(run_qkv({"bench", "generate", "--cache-type", "q4_0"}).status, 2);
  EXPECT_EQ(run_qkv({"bench", "generate", "--batch", "0"}).status, 2);
}

TEST(BenchCommand, TrainReportsSpeedAndParts) {
  const Finished finished = run_qkv({"bench", "train", "--json", "--preset", "andrea-12m", "--dtype", "f32",
                                     "--batch-size", "2", "--ctx-len", "16", "--steps", "2", "-t", "1"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const auto lines = lines_of(finished);
  ASSERT_EQ(lines.size(), 1);
  const json& line = lines[0];
  EXPECT_EQ(line["preset"], "andrea-12m");
  EXPECT_EQ(line["dtype"], "f32");
  EXPECT_EQ(line["threads"], 1);
  EXPECT_NEAR(line["tokens_per_s"].get<double>() * line["ms_per_step"].get<double>() / 1e3, 32, 1e-6);
  EXPECT_GT(line["peak_rss_bytes"].get<double>(), 4 * 4 * 10e6);  // weights, gradient and two moments
  double parts = 0;
  for (const auto& [name, ms] : line["ms_per_step_of"].items()) parts += ms.get<double>();
  EXPECT_GT(parts, 0);
  const Finished refused = run_qkv({"bench", "train", "--dtype", "f16"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("f16"));
}

}  // namespace
