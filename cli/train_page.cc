// SPDX-License-Identifier: Apache-2.0
#include "train_page.h"

#include "qkv/error.h"

namespace qkv::cli {

TrainPage::TrainPage(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts,
                     std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)) {
  attempt([&] {
    report_ = std::make_unique<RunReport>(directory, trainer, facts);
    return false;
  });
}

void TrainPage::after_step() {
  if (report_) attempt([&] { return report_->write_if_due(); });
}

void TrainPage::end(RunPhase phase, const std::string& message) {
  if (!report_) return;
  attempt([&] {
    report_->end(phase, message);
    return true;
  });
}

void TrainPage::attempt(const std::function<bool()>& work) {
  try {
    if (work()) warned_ = false;
  } catch (const FileError& error) {
    if (!warned_) warn_(std::string("cannot write the report: ") + error.what());
    warned_ = true;
  }
}

}  // namespace qkv::cli
