// SPDX-License-Identifier: Apache-2.0
#include "train_page.h"

#include "qkv/error.h"

namespace qkv::cli {

TrainPage::TrainPage(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts,
                     std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)) {
  attempt([&] { report_ = std::make_unique<RunReport>(directory, trainer, facts); });
}

void TrainPage::after_step() {
  if (report_) attempt([&] { report_->write_if_due(); });
}

void TrainPage::end(RunPhase phase, const std::string& message) {
  if (report_) attempt([&] { report_->end(phase, message); });
}

void TrainPage::attempt(const std::function<void()>& work) {
  try {
    work();
    warned_ = false;
  } catch (const FileError& error) {
    if (!warned_) warn_(std::string("warning: no page of this run: ") + error.what());
    warned_ = true;
  }
}

}  // namespace qkv::cli
