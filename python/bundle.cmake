# SPDX-License-Identifier: Apache-2.0
# Copies the shared libraries that ${module} needs to ${folder}, each under its soname, with the copyright files of
# their Debian packages. Excludes libraries that every Linux with glibc has.
file(GET_RUNTIME_DEPENDENCIES MODULES "${module}" RESOLVED_DEPENDENCIES_VAR libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|stdc[+][+])[.]so")
find_program(dpkg_query dpkg-query)
foreach(library ${libraries})
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" file)
  file(MAKE_DIRECTORY "${folder}")
  file(COPY_FILE "${file}" "${folder}/${name}" ONLY_IF_DIFFERENT)
  message(STATUS "Bundled: ${name}")
  if(dpkg_query)
    # The package may list the path without the leading /usr.
    string(REGEX REPLACE "^/usr" "" short "${file}")
    execute_process(COMMAND "${dpkg_query}" -S "*${short}" OUTPUT_VARIABLE owner ERROR_QUIET)
    string(REGEX MATCH "^[^:,]+" package "${owner}")
    if(package AND EXISTS "/usr/share/doc/${package}/copyright")
      file(REAL_PATH "/usr/share/doc/${package}/copyright" copyright)
      file(COPY_FILE "${copyright}" "${folder}/${package}.copyright" ONLY_IF_DIFFERENT)
    endif()
  endif()
endforeach()
