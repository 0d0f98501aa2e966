# SPDX-License-Identifier: Apache-2.0
# Install rules, and the Debian package of `cpack -G DEB`. See docs/installing.md.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The libraries, and find_package(qkv). Static and shared have separate targets: users of the shared library do not need
# its dependencies.
set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/qkv")
install(TARGETS qkv_static EXPORT qkvStatic ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(EXPORT qkvStatic NAMESPACE qkv:: FILE qkvStaticTargets.cmake DESTINATION "${config_dir}" COMPONENT development)
if(TARGET qkv_shared)
  install(TARGETS qkv_shared EXPORT qkvShared LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
    NAMELINK_COMPONENT development)
  install(EXPORT qkvShared NAMESPACE qkv:: FILE qkvSharedTargets.cmake DESTINATION "${config_dir}"
    COMPONENT development)
endif()
get_directory_property(QKV_PRIVATE_LIBRARIES DIRECTORY "${PROJECT_SOURCE_DIR}/src" DEFINITION private_libraries)
list(JOIN QKV_PRIVATE_LIBRARIES " " QKV_PRIVATE_LIBRARIES)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/qkvConfig.cmake.in" "${PROJECT_BINARY_DIR}/qkvConfig.cmake"
  INSTALL_DESTINATION "${config_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/qkvConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/qkvConfig.cmake" "${PROJECT_BINARY_DIR}/qkvConfigVersion.cmake"
  DESTINATION "${config_dir}" COMPONENT development)

# The headers, and pkg-config.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development
  FILES_MATCHING PATTERN "*.h")
file(RELATIVE_PATH QKV_PC_TO_PREFIX "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
configure_file("${CMAKE_CURRENT_LIST_DIR}/qkv.pc.in" "${PROJECT_BINARY_DIR}/qkv.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/qkv.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)

if(TARGET qkv)
  include(QkvPages)
  install(TARGETS qkv RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME copyright COMPONENT runtime)
install(FILES "${PROJECT_SOURCE_DIR}/README.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)

# A single package; its dependencies are determined from the binaries.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME qkv)
set(CPACK_PACKAGE_VENDOR "The qkv authors")
set(CPACK_PACKAGE_CONTACT "The qkv authors <qkv@qkv.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "attention and small language models, as a program and a library")
set(CPACK_PACKAGE_DESCRIPTION
  "The exact query-key-value mechanism, forward and backward, and the
decoder-only language models built on it: training, inference, inspection. A program (qkv), a C++ library and its C interface.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# Dependencies of programs that link libqkv.a.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "g++, cmake, libdnnl-dev, libfmt-dev, libpcre2-dev, libutf8proc-dev, libxxhash-dev, zlib1g-dev")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${CMAKE_CURRENT_LIST_DIR}/debian/triggers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/debian/finish.cmake")
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
