// SPDX-License-Identifier: Apache-2.0
// When `qkv train` writes report.html. A page that cannot be written never ends a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "qkv/report.h"

namespace qkv::cli {

class TrainPage {
 public:
  // warn: told once what keeps the page from being written, and again only after it could be.
  TrainPage(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts,
            std::function<void(const std::string&)> warn);

  void after_step();  // writes it if it is time
  void end(RunPhase phase, const std::string& message = {});

 private:
  void attempt(const std::function<bool()>& work);  // work: says whether it wrote a page

  std::unique_ptr<RunReport> report_;  // null if it could not be begun
  std::function<void(const std::string&)> warn_;
  bool warned_ = false;
};

}  // namespace qkv::cli
