// SPDX-License-Identifier: Apache-2.0
// A step shared by 2, 4 or 8 processes has the same bits as in a single process. Threads stand in for processes: each
// has its own model, optimizer and gradient sum, and they exchange data through a Communicator.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/threads.h"
#include "train/small_run.h"
#include "train/training_step.h"

namespace qkv {
namespace {

// The data sent by one process.
struct Sent {
  StepSize size;
  std::vector<double> losses;
  LaneRange lanes;
  bool empty = false;
  std::vector<Tensor> tensors;
};

struct Network {
  explicit Network(int size) : barrier(size), sent(static_cast<std::size_t>(size)) {}
  std::barrier<> barrier;
  std::vector<Sent> sent;  // [size]
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Network& network, int rank) : network_(network), rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(network_.sent.size()); }

  StepSize total(const StepSize& own) override {
    sent(rank_).size = own;
    network_.barrier.arrive_and_wait();
    StepSize sum;
    for (const Sent& one : network_.sent) {
      sum.sequences += one.size.sequences;
      sum.targets += one.size.targets;
    }
    network_.barrier.arrive_and_wait();
    return sum;
  }

  std::vector<double> gather(const std::vector<double>& own) override {
    sent(rank_).losses = own;
    network_.barrier.arrive_and_wait();
    std::vector<double> all;
    for (const Sent& one : network_.sent) all.insert(all.end(), one.losses.begin(), one.losses.end());
    network_.barrier.arrive_and_wait();
    return all;
  }

  void reduce(GradientSum& sum) override {
    for (int distance = 1; distance < size(); distance *= 2) {
      const GradientSum::Partial own = sum.partial();
      Sent& message = sent(rank_);
      message.lanes = own.lanes;
      message.empty = own.empty;
      message.tensors.clear();
      for (const Tensor* tensor : own.tensors) message.tensors.push_back(*tensor);
      network_.barrier.arrive_and_wait();
      Sent& other = sent(rank_ ^ distance);
      GradientSum::Partial received{other.lanes, other.empty, {}};
      for (Tensor& tensor : other.tensors) received.tensors.push_back(&tensor);
      sum.add(received);
      network_.barrier.arrive_and_wait();
    }
  }

 private:
  Sent& sent(int rank) { return network_.sent[static_cast<std::size_t>(rank)]; }
  Network& network_;
  int rank_;
};

struct Process {
  Process(const ModelConfig& shape, const TrainConfig& config, bool adapters,
          std::unique_ptr<Communicator> communicator)
      : model(shape, 5),
        step(model, config,
             adapters ? std::optional<LoraAdapters>(make_lora(shape, {.rank = 2, .alpha = 6}, 3)) : std::nullopt,
             std::move(communicator)) {}

  Model model;
  TrainingStep step;
  std::vector<StepReport> reports;
};

// Three steps of `sequences`; each process is given its own, two at a time.
void train(Process& process, const TrainConfig& config, std::int64_t sequences) {
  for (std::int64_t number = 1; number <= 3; ++number) {
    const test::Tokens all =
        test::random_tokens(process.model.config(), sequences, 9, static_cast<std::uint64_t>(number));
    const LaneRange lanes = process.step.lanes();
    std::vector<test::Tokens> parts;
    for (std::int64_t at = lanes.begin(sequences); at < lanes.end(sequences); at += 2)
      parts.push_back(all.sequences(at, std::min<std::int64_t>(2, lanes.end(sequences) - at)));
    std::vector<Batch> batches;
    for (const test::Tokens& part : parts) batches.push_back(part);
    process.reports.push_back(process.step.run(batches, config, {number, number}));
  }
}

void expect_processes_are_one(const ModelConfig& shape, const TrainConfig& config, bool adapters,
                              std::int64_t sequences) {
  Process alone(shape, config, adapters, std::make_unique<OneProcess>());
  train(alone, config, sequences);
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(config.optimizer + ", " + std::to_string(sequences) + " sequences, " + std::to_string(size) +
                 (adapters ? " processes, adapters" : " processes"));
    Network network(size);
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < size; ++rank)
      processes.push_back(
          std::make_unique<Process>(shape, config, adapters, std::make_unique<ThreadCommunicator>(network, rank)));
    std::vector<std::thread> threads;
    for (const auto& process : processes) threads.emplace_back([&] { train(*process, config, sequences); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& process : processes) {
      EXPECT_EQ(values(process->model.parameters()), values(alone.model.parameters()));
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(process->reports[i].loss, alone.reports[i].loss);
        EXPECT_EQ(process->reports[i].grad_norm, alone.reports[i].grad_norm);
        EXPECT_EQ(process->reports[i].tokens, alone.reports[i].tokens);
      }
    }
  }
}

TEST(Processes, ShareAStepBitForBit) {
  set_num_threads(1);
  for (const auto& [name, shape] : test::tiny_models()) {
    SCOPED_TRACE(name);
    TrainConfig config = small_training();
    config.dropout = 0.1;
    for (const std::int64_t sequences : {1, 5, 16}) expect_processes_are_one(shape, config, false, sequences);
    config.optimizer = "muon";
    expect_processes_are_one(shape, config, false, 11);
    expect_processes_are_one(shape, config, true, 6);
  }
  set_num_threads(0);
}

}  // namespace
}  // namespace qkv
