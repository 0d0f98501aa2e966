# SPDX-License-Identifier: Apache-2.0
# qkv_module(NAME SOURCES ... MODULES ... LIBRARIES ...) adds a module as the static library qkv_NAME;
# qkv_test(NAME SOURCES ... MODULES ... LIBRARIES ...) adds a GoogleTest program and registers it with CTest.
find_package(OpenMP REQUIRED COMPONENTS CXX)

add_library(qkv_flags INTERFACE)
target_include_directories(qkv_flags INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
# Never -ffast-math: masks need -inf. No contraction: FMA only where the source says so.
target_compile_options(qkv_flags INTERFACE -Wall -Wextra -Wshadow $<$<BOOL:${QKV_WERROR}>:-Werror> -ffp-contract=off)
# These cost GCC a fifth of its time: garbage collection at low memory use, and -Wpedantic, which Clang builds and
# tests/headers use anyway.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(qkv_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
else()
  target_compile_options(qkv_flags INTERFACE -Wpedantic)
endif()
if(QKV_SANITIZE)
  target_compile_options(qkv_flags INTERFACE -fsanitize=${QKV_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(qkv_flags INTERFACE -fsanitize=${QKV_SANITIZE})
endif()

# Options for code whose speed does not matter. GCC's -Og takes 3/4 of the time of its -O1.
set(QKV_QUICK_OPTIONS $<$<CONFIG:Release>:$<IF:$<CXX_COMPILER_ID:GNU>,-Og,-O1>>)

# qkv_precompile(NAME HEADERS ... LIBRARIES ... OPTIONS ...): precompiles expensive headers; qkv_use_precompiled(TARGET
# NAME) uses them in a target with the same OPTIONS (including ${CMAKE_CXX_COMPILE_OPTIONS_PIC} or _PIE: library or
# program). Sources still include what they use, so that everything builds with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
# too.
function(qkv_precompile name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBRARIES;OPTIONS" ${ARGN})
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc" CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  target_link_libraries(${name} PRIVATE qkv_flags OpenMP::OpenMP_CXX ${ARG_LIBRARIES})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  qkv_find_precompiled(${name} ${name})
endfunction()

function(qkv_use_precompiled target name)
  target_precompile_headers(${target} REUSE_FROM ${name})
  qkv_find_precompiled(${target} ${name})
endfunction()

# GCC finds the header by -I: clang-tidy would reject GCC's precompiled file next to an explicit path, and thus reads
# the header itself.
function(qkv_find_precompiled target name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_include_directories(${target} PRIVATE "$<TARGET_PROPERTY:${name},BINARY_DIR>/CMakeFiles/${name}.dir")
  endif()
endfunction()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Winvalid-pch -include cmake_pch.hxx)
endif()

function(qkv_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;MODULES;LIBRARIES" ${ARGN})
  add_library(qkv_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_MODULES PREPEND qkv_)
  target_link_libraries(qkv_${name} PUBLIC qkv_flags ${ARG_MODULES} PRIVATE ${ARG_LIBRARIES})
endfunction()

function(qkv_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;MODULES;LIBRARIES" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_MODULES PREPEND qkv_)
  target_link_libraries(test_${name} PRIVATE ${ARG_MODULES} ${ARG_LIBRARIES} OpenMP::OpenMP_CXX GTest::gmock GTest::gtest
                        GTest::gtest_main)
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_options(test_${name} PRIVATE ${QKV_QUICK_OPTIONS})
  qkv_use_precompiled(test_${name} test_precompiled)
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()

# Registers a test again as NAME_LEVEL with masked CPU features (QKV_CPU); it is skipped if the CPU lacks the level. The
# test's sources must include level_main.cc.
function(qkv_test_at_level name level filter)
  add_test(NAME ${name}_${level} COMMAND test_${name} "--gtest_filter=${filter}")
  set_tests_properties(${name}_${level} PROPERTIES ENVIRONMENT "QKV_CPU=${level};OMP_WAIT_POLICY=passive"
                       SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()
