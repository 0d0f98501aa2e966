// SPDX-License-Identifier: Apache-2.0
// inspect_sample OUT.html N_LAYER N_HEAD CTX D_K: writes the page of a random pass, for tests in a browser.
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "page/inspect_random.h"

int main(int count, char** arguments) {
  if (count != 6) {
    std::cerr << "usage: inspect_sample OUT.html N_LAYER N_HEAD CTX D_K\n";
    return 2;
  }
  try {
    const auto number = [&](int i) { return std::strtoll(arguments[i], nullptr, 10); };
    const qkv::test::RandomPass pass(number(2), number(3), number(4), number(5));
    std::ofstream file(arguments[1], std::ios::binary);
    file << qkv::inspect_html(pass.page);
    if (!file.flush()) throw std::runtime_error("cannot write");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
