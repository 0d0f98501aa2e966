// SPDX-License-Identifier: Apache-2.0
// QKV_KERNELS forces a set, tested in separate processes; an unknown or unsupported set is an error on every call.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>

#include "kernels/tables.h"

namespace qkv::test {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int status;
  std::string text;
};

// The output of print_kernel_set with the given QKV_KERNELS.
Answer ask(const std::string& setting) {
  const std::string command = "env " + setting + " " QKV_PRINT_KERNEL_SET;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  const int status = pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

bool is_available(const std::string& name) {
  for (const KernelTable* table : available_tables())
    if (table->name == name) return true;
  return false;
}

TEST(Choice, ForcedSetIsUsedOrAnError) {
  for (const std::string name : {"portable", "avx2", "avx512", "avx512_bf16"}) {
    const Answer answer = ask("QKV_KERNELS=" + name);
    if (is_available(name)) {
      EXPECT_EQ(answer.status, 0) << answer.text;
      EXPECT_EQ(answer.text, name);
    } else {
      EXPECT_EQ(answer.status, 1) << answer.text;
      EXPECT_THAT(answer.text, HasSubstr("[kernels] QKV_KERNELS must be one that this processor supports"));
      EXPECT_THAT(answer.text, HasSubstr("found '" + name + "'"));
    }
  }
}

TEST(Choice, UnknownSetIsAnError) {
  for (const std::string name : {"fast", "AVX2", "avx", "portable,avx2"}) {
    const Answer answer = ask("'QKV_KERNELS=" + name + "'");
    EXPECT_EQ(answer.status, 1) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("[kernels] QKV_KERNELS must be one of portable"));
    EXPECT_THAT(answer.text, HasSubstr("; found '" + name + "'"));
  }
}

TEST(Choice, TheBestOneByDefault) {
  const std::string best(available_tables().back()->name);
  EXPECT_EQ(ask("-u QKV_KERNELS").text, best);
  EXPECT_EQ(ask("QKV_KERNELS=").text, best);
}

}  // namespace
}  // namespace qkv::test
