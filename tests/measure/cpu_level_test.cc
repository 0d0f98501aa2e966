// SPDX-License-Identifier: Apache-2.0
// QKV_CPU limits every choice that depends on the processor; an unknown or unsupported level is an error.
#include "os/cpu_level.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace qkv {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Answer {
  int status;
  std::string text;
};

// The output of print_cpu_choices in an environment.
Answer ask(const std::string& setting) {
  const std::string command = "env -u QKV_KERNELS " + setting + " " QKV_PRINT_CPU_CHOICES;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  const int status = pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

std::string expected(CpuLevel level) {
#ifdef QKV_PLAIN_GEMM
  const bool library = false;
#else
  const bool library = true;
#endif
  const bool f32 = library && level >= CpuLevel::avx512, bf16 = library && level >= CpuLevel::avx512_bf16;
  static const char* const peaks[] = {"portable;", "avx2;portable;", "avx512;avx2;portable;",
                                      "avx512_bf16;avx512;avx512_bf16;avx2;portable;"};
  static const char* const loads[] = {"16", "32", "64", "64"};
  const std::string name(cpu_level_name(level));
  const auto digit = [](bool yes) { return yes ? "1" : "0"; };
  return "level=" + name + " kernels=" + name + " tile=" + (level == CpuLevel::portable ? "portable" : "wide") +
         " packed_f32=" + digit(f32) + " packed_bf16=" + digit(bf16) + " fast_bf16=" + digit(bf16) +
         " peaks=" + peaks[static_cast<int>(level)] + " loads=" + loads[static_cast<int>(level)] +
         " copies=" + (f32 ? "2" : "1");
}

bool processor_has(CpuLevel level) {
  const auto levels = processor_levels();
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

TEST(CpuLevel, LimitsEveryChoice) {
  for (int i = 0; i < 4; ++i) {
    const auto level = static_cast<CpuLevel>(i);
    const std::string name(cpu_level_name(level));
    const Answer answer = ask("QKV_CPU=" + name);
    if (processor_has(level)) {
      EXPECT_EQ(answer.status, 0);
      EXPECT_EQ(answer.text, expected(level));
    } else {
      EXPECT_EQ(answer.status, 1);
      EXPECT_THAT(answer.text, StartsWith("[QKV_CPU] expected a level that this processor supports (portable"));
      EXPECT_THAT(answer.text, HasSubstr("; found '" + name + "'"));
    }
  }
}

TEST(CpuLevel, TheHighestByDefault) {
  const std::string best = "level=" + std::string(cpu_level_name(processor_levels().back())) + " ";
  EXPECT_THAT(ask("-u QKV_CPU").text, StartsWith(best));
  EXPECT_THAT(ask("QKV_CPU=").text, StartsWith(best));
  EXPECT_EQ(ask("-u QKV_CPU ONEDNN_MAX_CPU_ISA=SSE41").text, ask("-u QKV_CPU").text) << "QKV_CPU is the only variable";
}

TEST(CpuLevel, UnknownLevelsAreErrors) {
  for (const std::string name : {"fast", "AVX2", "avx", "amx", "portable,avx2"}) {
    const Answer answer = ask("'QKV_CPU=" + name + "'");
    EXPECT_EQ(answer.status, 1);
    EXPECT_THAT(answer.text, StartsWith("[QKV_CPU] expected a level that this processor supports (portable"));
    EXPECT_THAT(answer.text, HasSubstr("; found '" + name + "'"));
  }
}

TEST(CpuLevel, KernelsAboveItAreRefused) {
  if (!processor_has(CpuLevel::avx2)) GTEST_SKIP() << "this processor has one level only";
  const Answer answer = ask("QKV_CPU=portable QKV_KERNELS=avx2");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.text, HasSubstr("[kernels] QKV_KERNELS must be one that this processor supports"));
  EXPECT_THAT(answer.text, HasSubstr("(portable); found 'avx2'"));
}

}  // namespace
}  // namespace qkv
