# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions: the program writes them itself, from the definitions of its command line.
set(pages "${PROJECT_BINARY_DIR}/pages")
add_custom_command(OUTPUT "${pages}/stamp"
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${pages}"
  COMMAND qkv man --out "${pages}/man"
  COMMAND qkv completion bash > "${pages}/qkv"
  COMMAND qkv completion zsh > "${pages}/_qkv"
  COMMAND qkv completion fish > "${pages}/qkv.fish"
  COMMAND "${CMAKE_COMMAND}" -E touch "${pages}/stamp"
  DEPENDS qkv COMMENT "Manual pages and completions")
add_custom_target(qkv_pages ALL DEPENDS "${pages}/stamp")
install(DIRECTORY "${pages}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT runtime)
install(FILES "${pages}/qkv" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT runtime)
install(FILES "${pages}/_qkv" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions" COMPONENT runtime)
install(FILES "${pages}/qkv.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT runtime)
