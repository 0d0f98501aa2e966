// SPDX-License-Identifier: Apache-2.0
// When `qkv train` writes report.html. A failure to write it never ends a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "qkv/report.h"

namespace qkv::cli {

class TrainPage {
 public:
  // warn: called once when writing the report fails, and again only after a write succeeded.
  TrainPage(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts,
            std::function<void(const std::string&)> warn);

  void after_step();  // writes the report if it is due
  void end(RunPhase phase, const std::string& message = {});

 private:
  void attempt(const std::function<bool()>& work);  // work: returns whether it wrote the report

  std::unique_ptr<RunReport> report_;  // null if it could not be created
  std::function<void(const std::string&)> warn_;
  bool warned_ = false;
};

}  // namespace qkv::cli
