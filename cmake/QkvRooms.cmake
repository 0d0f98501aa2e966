# SPDX-License-Identifier: Apache-2.0
# How a room of the house is built: qkv_room(NAME SOURCES ... ROOMS ... LIBRARIES ...) makes the static library
# qkv_NAME, and qkv_test(NAME SOURCES ... ROOMS ... LIBRARIES ...) makes a GoogleTest program registered with CTest.
find_package(OpenMP REQUIRED COMPONENTS CXX)

add_library(qkv_flags INTERFACE)
target_include_directories(qkv_flags INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
# Never -ffast-math: masks need -inf. No contraction: a fused multiply-add stands where one is written.
target_compile_options(qkv_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${QKV_WERROR}>:-Werror> -ffp-contract=off)
target_compile_definitions(qkv_flags INTERFACE QKV_VERSION="${PROJECT_VERSION}")
if(QKV_SANITIZE)
  target_compile_options(qkv_flags INTERFACE -fsanitize=${QKV_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(qkv_flags INTERFACE -fsanitize=${QKV_SANITIZE})
endif()

function(qkv_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LIBRARIES" ${ARGN})
  add_library(qkv_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND qkv_)
  target_link_libraries(qkv_${name} PUBLIC qkv_flags ${ARG_ROOMS} PRIVATE ${ARG_LIBRARIES})
endfunction()

function(qkv_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LIBRARIES" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND qkv_)
  target_link_libraries(test_${name} PRIVATE ${ARG_ROOMS} ${ARG_LIBRARIES} GTest::gmock GTest::gtest GTest::gtest_main)
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()

# Another entry for a test, NAME_LEVEL, with the processor's features masked (QKV_CPU); a level that the processor lacks
# is a skipped test. The test's sources have level_main.cc among them.
function(qkv_test_at_level name level filter)
  add_test(NAME ${name}_${level} COMMAND test_${name} "--gtest_filter=${filter}")
  set_tests_properties(${name}_${level} PROPERTIES ENVIRONMENT "QKV_CPU=${level};OMP_WAIT_POLICY=passive"
                       SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()
