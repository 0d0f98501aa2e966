// SPDX-License-Identifier: Apache-2.0
// qkv devices, and --device of the commands that support it.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "generate_command.h"
#include "qkv/array_file.h"

namespace {

using nlohmann::json;
using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

class DeviceCommand : public qkv_test::GenerateCommand {
 protected:
  Finished ok(const std::vector<std::string>& arguments) const {
    Finished finished = run_qkv(arguments);
    EXPECT_EQ(finished.status, 0) << arguments[0] << ": " << finished.err;
    return finished;
  }
};

TEST(DevicesCommand, ListsThem) {
  const Finished text = run_qkv({"devices", "-t", "1"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("cpu: "));
  EXPECT_THAT(text.out, HasSubstr("reference: "));
  EXPECT_THAT(text.out, HasSubstr("kernels"));
  const json all = json::parse(run_qkv({"devices", "--json", "-t", "1"}).out);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["name"], "cpu");
  EXPECT_EQ(all[0]["threads"], 1);
  EXPECT_GT(all[0]["memory_bytes"], 0);
  EXPECT_THAT(all[0]["settings"]["available"].get<std::string>(),
              HasSubstr(all[0]["settings"]["features"].get<std::string>()));
  EXPECT_EQ(all[1]["dtype"], "f64");
  EXPECT_EQ(all[1]["compute_dtype"], json::array({"f64"}));
}

TEST(DevicesCommand, AnUnknownDeviceIsAUsageErrorThatListsTheKnownOnes) {
  const std::vector<std::vector<std::string>> commands = {{"attend", "--q", "q", "--k", "k", "--v", "v", "--out", "o"},
                                                          {"train", "--data", "x", "--out", "y"},
                                                          {"generate", "-m", "m"},
                                                          {"chat", "-m", "m"},
                                                          {"eval", "-m", "m", "--data", "x"},
                                                          {"inspect", "-m", "m", "-p", "x"},
                                                          {"bench", "peak"},
                                                          {"bench", "attention"},
                                                          {"bench", "train"},
                                                          {"bench", "generate"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--device", "abacus"});
    const Finished finished = run_qkv(command);
    EXPECT_EQ(finished.status, 2) << command[0];
    EXPECT_THAT(finished.err, HasSubstr("expected one of cpu, reference; found 'abacus'")) << command[0];
  }
  for (const char* what : {"peak", "attention"})
    EXPECT_THAT(run_qkv({"bench", what, "--device", "reference"}).err, HasSubstr("--device expected cpu"));
}

TEST_F(DeviceCommand, AttentionInF64) {
  std::filesystem::create_directories(path("a"));
  const std::string q = path("a/q.npy"), out = path("a/o.npy"), wide = path("a/w.npy");
  qkv::Tensor x({1, 2, 5, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i % 7) - 3;
  qkv::save_npy(q, x);
  const std::vector<std::string> attend = {"attend", "--q", q, "--k", q, "--v", q, "--causal", "top-left"};
  auto on_cpu = attend, on_reference = attend;
  on_cpu.insert(on_cpu.end(), {"--out", out, "--device", "cpu"});
  on_reference.insert(on_reference.end(), {"--out", wide, "--device", "reference"});
  ok(on_cpu);
  ok(on_reference);
  const qkv::Tensor a = qkv::load_npy(out), b = qkv::load_npy(wide);
  ASSERT_EQ(a.dtype(), qkv::DType::f32);
  ASSERT_EQ(b.dtype(), qkv::DType::f64);
  for (std::int64_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a.data()[i], b.data<double>()[i], 1e-5);
  on_reference.insert(on_reference.end(), {"--dtype", "f32"});
  EXPECT_EQ(run_qkv(on_reference).status, 2);
}

TEST_F(DeviceCommand, TheReferenceEvaluatesAndGeneratesLikeTheCpu) {
  save("model", 64, [](qkv::Model& model) {  // logits far enough apart that rounding changes no choice
    for (qkv::Tensor& tensor : *model.change_parameters())
      for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] *= 5;
  });
  const std::string text = path("text.txt");
  std::ofstream(text) << "In the beginning God created the heaven and the earth.";
  const auto loss = [&](const char* device) {
    return json::parse(ok({"eval", "-m", path("model"), "--data", text, "--json", "--device", device}).out)["loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss("reference"), loss("cpu"), 1e-4);
  EXPECT_NE(loss("reference"), loss("cpu")) << "f64 is really used";
  const auto inspected = [&](const char* device) {
    const std::string to = path(std::string("saved_") + device);
    ok({"inspect", "-m", path("model"), "-p", "And God", "--save", to, "--device", device});
    return qkv::load_npy(to + "/blocks.0.hook_resid_post.npy");
  };
  const qkv::Tensor wide = inspected("reference"), narrow = inspected("cpu");
  ASSERT_EQ(wide.size(), narrow.size());
  const std::vector<std::string> greedy = {"generate", "-m", path("model"), "-p", "And", "-n", "12", "--temp", "0"};
  auto on_cpu = greedy, on_reference = greedy;
  on_cpu.insert(on_cpu.end(), {"--device", "cpu", "--dtype", "f32"});
  on_reference.insert(on_reference.end(), {"--device", "reference"});
  EXPECT_EQ(ok(on_cpu).out, ok(on_reference).out);
}

TEST_F(DeviceCommand, TrainingInF64Resumes) {
  const std::string text = path("text.txt");
  {
    std::ofstream file(text);
    for (int i = 0; i < 60; ++i) file << "In the beginning God created the heaven and the earth. " << i;
  }
  const auto train = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", "--data",       text, "--out",           out, "--steps",
                                          "4",     "--n-layer",    "1",  "--n-head",        "2", "--d-model",
                                          "16",    "--ctx-len",    "16", "--batch-size",    "2", "--tokenizer",
                                          "bytes", "--eval-iters", "1",  "--sample-tokens", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_qkv(arguments);
  };
  const Finished whole = train(path("whole"), {"--device", "reference"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("device reference: f64"));
  ASSERT_EQ(train(path("cut"), {"--device", "reference", "--stop-after", "2"}).status, 0);
  const Finished resumed = train(path("cut"), {"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const auto bytes = [&](const std::string& name) {
    std::ifstream file(path(name) + "/model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(bytes("whole"), bytes("cut"));
  EXPECT_THAT(ok({"info", "-m", path("whole")}).out, HasSubstr("F64"));
  EXPECT_EQ(train(path("cut"), {"--resume", "--device", "cpu"}).status, 2);
  EXPECT_EQ(train(path("x"), {"--device", "reference", "--dtype", "bf16"}).status, 2);
}

}  // namespace
