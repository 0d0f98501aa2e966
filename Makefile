# SPDX-License-Identifier: Apache-2.0
# The commands that people type; CMake's presets do the work.
.PHONY: build test test-python demo check deb asan tsan clean deps

JOBS ?= $(shell nproc)

build: deps  ## an optimised build/release/qkv
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	cmake --build --preset release --parallel $(JOBS) --target qkv

test: deps  ## builds and runs every test
	cmake --preset release -DQKV_BUILD_TESTS=ON $$(scripts/python_tools.sh)
	cmake --build --preset release --parallel $(JOBS)
	ctest --preset release --parallel $(JOBS)

test-python:  ## the Python package with its peers: PyTorch, ONNX, JAX, transformers; in an environment of its own
	scripts/test_python.sh

demo: build  ## grows a small model from the King James text and lets it write
	scripts/demo.sh

check:  ## what continuous integration does, and format, lint and house rules
	scripts/check.sh

deb: deps  ## a Debian package, build/release/qkv_VERSION_ARCHITECTURE.deb
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	cmake --build --preset release --parallel $(JOBS) --target qkv_pages qkv_static qkv_shared
	cd build/release && cpack -G DEB

asan: deps  ## every test under AddressSanitizer and UBSan
	cmake --preset asan
	cmake --build --preset asan --parallel $(JOBS)
	ctest --preset asan --parallel $(JOBS)

tsan:  ## every test under ThreadSanitizer (clang and libomp)
	scripts/install_deps.sh --all
	cmake --preset tsan
	cmake --build --preset tsan --parallel $(JOBS)
	ctest --preset tsan --parallel $(JOBS)

clean:
	rm -rf build

deps:
	@scripts/install_deps.sh
