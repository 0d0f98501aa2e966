// SPDX-License-Identifier: Apache-2.0
// The data of the training page's script, and texts shared by page and script.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "page/training_page.h"

namespace qkv {

// One JSON object, safe inside <script>: step, written, refresh, series (columns of numbers) and marks.
std::string training_data(const TrainingPage& page);

// The text of a kind of mark: "skipped" is a "step skipped: NaN or infinity".
std::string_view mark_label(std::string_view kind) noexcept;

std::string grouped(std::int64_t number);    // "1,048,576"
std::string duration(double seconds);        // "41 s", "12 min 5 s", "3 h 2 min", "5 d 3 h"
std::string utc_time(std::int64_t seconds);  // since 1970: "2026-11-29T21:40:05Z"

}  // namespace qkv
