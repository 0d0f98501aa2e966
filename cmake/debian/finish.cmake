# SPDX-License-Identifier: Apache-2.0
# Adjusts the installed files to Debian policy just before CPack packs them: copyright file, changelog, and compressed
# manual pages.
file(GLOB_RECURSE copyright "${CPACK_TEMPORARY_DIRECTORY}/copyright")
get_filename_component(doc "${copyright}" DIRECTORY)
configure_file("${CMAKE_CURRENT_LIST_DIR}/copyright" "${copyright}" COPYONLY)
file(CHMOD "${copyright}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if set
file(WRITE "${doc}/changelog" "qkv (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Version ${CPACK_PACKAGE_VERSION}, packed by CPack.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
file(GLOB pages "${doc}/../../man/man1/*.1")
execute_process(COMMAND gzip -9n "${doc}/changelog" ${pages} COMMAND_ERROR_IS_FATAL ANY)
