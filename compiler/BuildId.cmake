# Writes OUTPUT: the SHA-256 over the contents of SOURCES, in sorted order.
list(SORT SOURCES)
set(hashes "")
foreach(source ${SOURCES})
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 id "${hashes}")
file(WRITE ${OUTPUT} "#define RHO_BUILD_ID \"${id}\"\n")
