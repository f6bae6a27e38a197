# How a target of ours uses MLIR. Included by the top CMakeLists.txt; compiler/ is the only room
# that may use what it defines.
#
#   target_link_libraries(rho_compiler PUBLIC rho_settings rho_dsl PRIVATE rho_mlir)
#
# PRIVATE is enough: a static library passes the libraries on to the executable, and the MLIR
# headers stay inside the room. In a normal build rho_mlir is the distribution's shared libMLIR and
# libLLVM. With RHO_STATIC it is their archives, and never both: two copies of LLVM in one process
# register every option and type twice. Archives whose members nobody refers to cost nothing, so
# all of MLIR is offered; LLVM is what the NVPTX back end and the optimizer need.
#
#   rho_mlir_tablegen(rho_ir Rho.td
#     RhoOps.h.inc:-gen-op-decls RhoOps.cpp.inc:-gen-op-defs
#     RhoDialect.h.inc:-gen-dialect-decls:-dialect=rho RhoDialect.cpp.inc:-gen-dialect-defs:-dialect=rho)
#   add_dependencies(rho_compiler rho_ir)
#
# runs mlir-tblgen on Rho.td (beside the CMakeLists.txt that calls), once for each
# output:flag[:flag...], and makes the target rho_ir. The results lie in the matching directory of
# the build tree, which rho_mlir already has on the include path from the root:
# #include "compiler/ir/RhoOps.h.inc". Several calls may name the same target.
#
#   rho_mlir_precompile(rho_compiler)
#
# gives a target with several MLIR sources a precompiled header: reading NVVMDialect.h alone takes
# 11 s a source. Not for a target with one such source: building the header takes 15 s.

find_package(MLIR 22.1 REQUIRED CONFIG PATHS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddMLIR)

add_library(rho_mlir INTERFACE)
# SYSTEM: warnings in LLVM's headers are not ours to fix. The build tree holds TableGen's output.
target_include_directories(rho_mlir SYSTEM INTERFACE
  ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS} ${CMAKE_BINARY_DIR})
separate_arguments(definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_options(rho_mlir INTERFACE ${definitions})
if(NOT LLVM_ENABLE_RTTI)
  target_compile_options(rho_mlir INTERFACE -fno-rtti)
endif()

if(RHO_STATIC)
  execute_process(
    COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --libfiles nvptx passes
    OUTPUT_VARIABLE llvmArchives OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(llvmArchives NATIVE_COMMAND "${llvmArchives}")
  # CAPI and Test archives hold nothing that a C++ client refers to.
  file(GLOB mlirArchives ${LLVM_LIBRARY_DIR}/libMLIR*.a)
  list(FILTER mlirArchives EXCLUDE REGEX "/libMLIR(CAPI|Test|.*TestPasses)")
  find_library(RHO_ZLIB_ARCHIVE libz.a REQUIRED)
  find_library(RHO_ZSTD_ARCHIVE libzstd.a REQUIRED)
  target_link_libraries(rho_mlir INTERFACE
    -Wl,--start-group ${mlirArchives} ${llvmArchives} -Wl,--end-group
    ${RHO_ZSTD_ARCHIVE} ${RHO_ZLIB_ARCHIVE} ${CMAKE_DL_LIBS} m)
else()
  target_link_libraries(rho_mlir INTERFACE MLIR LLVM)
endif()

function(rho_mlir_tablegen target td)
  set(LLVM_TARGET_DEFINITIONS ${td})
  set(TABLEGEN_OUTPUT)
  foreach(output ${ARGN})
    string(REPLACE ":" ";" output "${output}")
    list(POP_FRONT output file)
    tablegen(MLIR ${file} ${output}
      EXTRA_INCLUDES ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS} ${CMAKE_SOURCE_DIR})
  endforeach()
  if(TARGET ${target})
    # Outputs of one directory may be named from its targets only, hence a target for each call.
    string(MAKE_C_IDENTIFIER "${target}_${td}" part)
    add_custom_target(${part} DEPENDS ${TABLEGEN_OUTPUT})
    add_dependencies(${target} ${part})
  else()
    add_custom_target(${target} DEPENDS ${TABLEGEN_OUTPUT})
  endif()
endfunction()

function(rho_mlir_precompile target)
  target_precompile_headers(${target} PRIVATE
    <mlir/Dialect/Arith/IR/Arith.h>
    <mlir/Dialect/LLVMIR/NVVMDialect.h>
    <mlir/Dialect/SCF/IR/SCF.h>
    <mlir/IR/Builders.h>
    <mlir/IR/BuiltinOps.h>
    <mlir/IR/OpImplementation.h>
    <mlir/Pass/PassManager.h>)
endfunction()
