# What `cmake --install` puts into a prefix: the shared library with all of Rho and the headers of
# its C++ and C APIs, for find_package(rho) in somebody else's build, the tool, and the shipped
# declarations.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Installed headers name each other from where they are: a user may have a folder `dsl` or `runtime`.
# The library exports what they declare, and nothing else: a process may have an LLVM of its own.
set(exported "")
foreach(header runtime/Rho.h runtime/RhoC.h runtime/InputTransform.h runtime/KvCache.h kernels/WeightFile.h
    kernels/WeightFileC.h dsl/Error.h dsl/Source.h dsl/Diagnostics.def)
  get_filename_component(folder ${header} DIRECTORY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
  file(READ ${CMAKE_SOURCE_DIR}/${header} content)
  string(REGEX REPLACE "#include \"(dsl|runtime)/" "#include \"../\\1/" content "${content}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/installed/${header} CONTENT "${content}" @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/installed/${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rho/${folder})
  string(REGEX MATCHALL "\n(class|struct) [A-Za-z]+ {" types "${content}")
  string(REGEX MATCHALL "\n[A-Za-z][A-Za-z_:<> &*]* [&*]?[a-z][A-Za-z]*\\(" functions "${content}")
  foreach(type ${types})
    string(REGEX REPLACE ".* ([A-Za-z]+) {" "\\1" name "${type}")
    string(APPEND exported "      rho::${name}::*;\n")
  endforeach()
  foreach(function ${functions})
    string(REGEX REPLACE ".*[ &*]([A-Za-z]+)\\(" "\\1" name "${function}")
    string(APPEND exported "      rho::${name}*;\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/exported.map
  CONTENT "{\n  global:\n    rho_*;\n    extern \"C++\" {\n${exported}    };\n  local:\n    *;\n};\n" @ONLY)

add_library(rho_shared SHARED ${CMAKE_BINARY_DIR}/rho_shared.cpp)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/rho_shared.cpp CONTENT "")
target_link_libraries(rho_shared PRIVATE
  -Wl,--whole-archive $<TARGET_FILE:rho_runtime> $<TARGET_FILE:rho_dsl> $<TARGET_FILE:rho_weights>
  -Wl,--no-whole-archive rho_runtime rho_weights)
# A process that unloads it keeps it: libMLIR's registry of types points into it.
target_link_options(rho_shared PRIVATE
  -Wl,--version-script=${CMAKE_BINARY_DIR}/exported.map -Wl,-z,nodelete)
set_target_properties(rho_shared PROPERTIES
  OUTPUT_NAME rho EXPORT_NAME rho VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION}
  LINK_DEPENDS ${CMAKE_BINARY_DIR}/exported.map)
target_compile_features(rho_shared INTERFACE cxx_std_20)
target_include_directories(rho_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/rho>)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/rho)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/rho-config.cmake.in
  ${CMAKE_BINARY_DIR}/rho-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/rho-config-version.cmake
  COMPATIBILITY SameMinorVersion)
set_target_properties(rho_shared rho PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON) # to LLVM's folder
install(TARGETS rho_shared EXPORT rho-targets)
install(EXPORT rho-targets NAMESPACE rho:: DESTINATION ${package})
# For builds without CMake. Its prefix is where the file is, so the tree may be moved.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/rho.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@up@
Name: rho
Description: JIT compiler for quantized GEMMs
Version: @PROJECT_VERSION@
Cflags: -I${prefix}/@CMAKE_INSTALL_INCLUDEDIR@/rho
Libs: -L${prefix}/@CMAKE_INSTALL_LIBDIR@ -lrho
]])
install(FILES ${CMAKE_BINARY_DIR}/rho.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/rho-config.cmake ${CMAKE_BINARY_DIR}/rho-config-version.cmake
  DESTINATION ${package})
install(TARGETS rho)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/kernels/formats ${CMAKE_SOURCE_DIR}/kernels/gemms
  ${CMAKE_SOURCE_DIR}/kernels/devices DESTINATION ${CMAKE_INSTALL_DATADIR}/rho/kernels)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/editors DESTINATION ${CMAKE_INSTALL_DATADIR}/rho
  PATTERN node_modules EXCLUDE PATTERN package-lock.json EXCLUDE PATTERN *.vsix EXCLUDE)
