# SPDX-License-Identifier: Apache-2.0
# Shortcuts for the CMake presets. `make help` lists them.
.PHONY: help build install test test-python demo check deb asan tsan clean deps check-deps

.DEFAULT_GOAL := build

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
RELEASE = cmake --build --preset release --parallel $(JOBS)

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1	/p' $(MAKEFILE_LIST) | expand -t 16

build: check-deps  ## build build/release/qkv; no installation, no root
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	$(RELEASE) --target qkv

install: check-deps  ## install the program, libraries and headers to PREFIX (/usr/local)
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	$(RELEASE)
	cmake --install build/release --prefix "$(PREFIX)"

demo: deps  ## install missing packages, build, train a small model on the King James text, generate
	@$(MAKE) --no-print-directory build
	scripts/demo.sh

test: deps  ## install missing packages, build and run all tests
	cmake --preset release -DQKV_BUILD_TESTS=ON $$(scripts/python_tools.sh)
	$(RELEASE)
	ctest --preset release --parallel $(JOBS)

test-python:  ## test the Python package against PyTorch, ONNX, JAX and transformers, in a venv
	scripts/test_python.sh

check:  ## make test, all CPU levels, format, clang-tidy and the coding rules
	scripts/check.sh

deb: check-deps  ## build build/release/qkv_VERSION_ARCHITECTURE.deb
	cmake --preset release -DQKV_BUILD_TESTS=OFF
	$(RELEASE) --target qkv_pages qkv_static qkv_shared
	cd build/release && cpack -G DEB

asan: deps  ## run all tests under AddressSanitizer and UBSan
	cmake --preset asan
	cmake --build --preset asan --parallel $(JOBS)
	ctest --preset asan --parallel $(JOBS)

tsan:  ## run all tests under ThreadSanitizer (clang and libomp)
	scripts/install_deps.sh --all
	cmake --preset tsan
	cmake --build --preset tsan --parallel $(JOBS)
	ctest --preset tsan --parallel $(JOBS)

clean:  ## remove build/
	rm -rf build

deps:
	@scripts/install_deps.sh

check-deps:
	@scripts/install_deps.sh --check
