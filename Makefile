# SPDX-License-Identifier: Apache-2.0
# Short names for the CMake presets. `make help` lists them.
.PHONY: help build install test test-python demo check deb asan tsan clean deps check-deps

.DEFAULT_GOAL := build

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
RELEASE = cmake --build --preset release --parallel $(JOBS)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1	/p' $(MAKEFILE_LIST) | expand -t 16

build: check-deps  ## build/release/qkv; installs nothing and needs no root
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	$(RELEASE) --target qkv

install: check-deps  ## the program, libraries and headers below PREFIX (default /usr/local)
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	$(RELEASE)
	cmake --install build/release --prefix "$(PREFIX)"

demo: deps  ## installs missing packages, builds, trains a small model on the King James text, generates
	@$(MAKE) --no-print-directory build
	scripts/demo.sh

test: deps  ## installs missing packages, builds and runs every test
	cmake --preset release -DQKV_BUILD_TESTS=ON $$(scripts/python_tools.sh)
	$(RELEASE)
	ctest --preset release --parallel $(JOBS)

test-python:  ## the Python package against PyTorch, ONNX, JAX and transformers, in its own environment
	scripts/test_python.sh

check:  ## make test, every CPU level, format, clang-tidy and the coding rules
	scripts/check.sh

deb: check-deps  ## build/release/qkv_VERSION_ARCHITECTURE.deb
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	$(RELEASE) --target qkv_pages qkv_static qkv_shared
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

clean:  ## removes build/
	rm -rf build

deps:
	@scripts/install_deps.sh

check-deps:
	@scripts/install_deps.sh --check
