# Installs the build into a prefix, builds the examples against that prefix alone and runs them, one
# on a file that the installed tool quantized.
# cmake -DBUILD=... -DWORK=... -DEXAMPLES=... -DCOMPILER=... -DC_COMPILER=... -DNM=... -P package_test.cmake

set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${WORK})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
# What headers declare, in classes and outside, and nothing of the insides.
file(GLOB library ${prefix}/lib*/librho.so ${prefix}/lib/*/librho.so)
execute_process(COMMAND ${NM} --dynamic --defined-only --demangle ${library} OUTPUT_VARIABLE symbols
  COMMAND_ERROR_IS_FATAL ANY)
foreach(wanted "rho::Engine::compile\\(" "rho::KvCache::create\\(" "rho::WeightFile::open\\(" "rho::text\\(")
  if(NOT symbols MATCHES " ${wanted}")
    message(FATAL_ERROR "the library does not export ${wanted}")
  endif()
endforeach()
file(STRINGS ${prefix}/include/rho/runtime/RhoC.h declared REGEX "rho_[a-z_]+\\(")
file(STRINGS ${prefix}/include/rho/kernels/WeightFileC.h more REGEX "rho_[a-z_]+\\(")
foreach(line ${declared} ${more})
  string(REGEX MATCH "(rho_[a-z_]+)\\(" found "${line}")
  if(NOT symbols MATCHES " ${CMAKE_MATCH_1}\n")
    message(FATAL_ERROR "the library does not export ${CMAKE_MATCH_1}")
  endif()
endforeach()
if(symbols MATCHES " rho::(compiler|dsl|cache|emulator|kernels|tool)::[A-Za-z:]*\\(")
  message(FATAL_ERROR "the library exports ${CMAKE_MATCH_0}")
endif()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_C_COMPILER=${C_COMPILER} -DEXAMPLES=${EXAMPLES})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache ${WORK}/build/gemm ${prefix}/share/rho/kernels/gemms/int4_g128_f16.rho)
run(${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache ${WORK}/build/gemm_c)
# Without CMake.
get_filename_component(libraries ${library} DIRECTORY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${libraries}/pkgconfig pkg-config --cflags --libs rho
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags)
run(${C_COMPILER} ${EXAMPLES}/gemm.c ${flags} -lm -o ${WORK}/gemm_by_flags)
run(${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache LD_LIBRARY_PATH=${libraries} ${WORK}/gemm_by_flags)
execute_process(COMMAND ${WORK}/build/at_exit ${library} TIMEOUT 60 OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
if(NOT said MATCHES "\\[process_ends\\]")
  message(FATAL_ERROR "a compilation when the process ends: ${said}")
endif()
foreach(milliseconds 2 6 10 14 18 22 26 30 35 40 50 60)
  execute_process(COMMAND ${WORK}/build/early_exit ${milliseconds} TIMEOUT 60 COMMAND_ERROR_IS_FATAL ANY)
endforeach()
find_program(python3 python3)
if(python3) # a part of LLVM's own packages
  run(${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache PYTHONPATH=${EXAMPLES} PYTHONDONTWRITEBYTECODE=1 ${python3}
    ${CMAKE_CURRENT_LIST_DIR}/python_test.py ${library} ${prefix}/share/rho/kernels/gemms/int4_g128_f16.rho)
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache ${WORK}/build/codes
  WORKING_DIRECTORY ${WORK} COMMAND_ERROR_IS_FATAL ANY)
# A .safetensors file of one weight `w` of 64 x 128 numbers in f16, all of them 1 + 2^-10 * 15.
set(header "{\"w\":{\"dtype\":\"F16\",\"shape\":[64,128],\"data_offsets\":[0,16384]}}  ")
string(LENGTH "${header}" length)
string(REPEAT "<<" 8192 numbers)
string(ASCII ${length} size)
execute_process(COMMAND printf "%s\\0\\0\\0\\0\\0\\0\\0%s%s" "${size}" "${header}" "${numbers}"
  OUTPUT_FILE ${WORK}/in.safetensors COMMAND_ERROR_IS_FATAL ANY)
run(${prefix}/bin/rho quantize ${WORK}/in.safetensors --format int4_g64 -o ${WORK}/q.safetensors)
run(${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache ${WORK}/build/weights ${WORK}/q.safetensors w)
run(${prefix}/bin/rho check ${prefix}/share/rho/kernels/gemms/nvfp4_bf16.rho)
foreach(file package.json extension.js rho.tmLanguage.json)
  if(NOT EXISTS ${prefix}/share/rho/editors/${file})
    message(FATAL_ERROR "the prefix has no share/rho/editors/${file}")
  endif()
endforeach()
