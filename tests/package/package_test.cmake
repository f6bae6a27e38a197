# Installs the build into a prefix, builds the example against that prefix alone and runs it.
# cmake -DBUILD=... -DWORK=... -DEXAMPLE=... -DCOMPILER=... -P package_test.cmake

set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${WORK})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DEXAMPLE=${EXAMPLE})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${CMAKE_COMMAND} -E env RHO_CACHE_DIR=${WORK}/cache ${WORK}/build/embedding ${prefix}/share/rho/kernels/gemms/int4_g128_f16.rho)
run(${prefix}/bin/rho check ${prefix}/share/rho/kernels/gemms/nvfp4_bf16.rho)
