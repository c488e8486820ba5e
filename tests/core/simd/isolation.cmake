# Every kernel object defines only its own table, and no symbol that a linker
# could merge: an inline function compiled for AVX-512 would crash older CPUs if
# the whole program used it.
#   cmake -DNM=<nm> -DOBJECTS=<list> -P isolation.cmake

set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "/kernels_([a-z0-9_]+)\\.cc")
    continue()
  endif()
  # kernels_avx512_bf16.cc: kAvx512Bf16Kernels.
  string(REPLACE "_" ";" words ${CMAKE_MATCH_1})
  set(table "k")
  foreach(word IN LISTS words)
    string(SUBSTRING ${word} 0 1 initial)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${initial} initial)
    string(APPEND table ${initial}${rest})
  endforeach()
  string(APPEND table "Kernels")

  execute_process(
    COMMAND ${NM} --defined-only --extern-only --demangle ${object}
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  set(found FALSE)
  foreach(symbol IN LISTS symbols)
    if(symbol MATCHES "^[0-9a-f]+ [DR] posenc::simd::${table}$")
      set(found TRUE)
    elseif(NOT symbol MATCHES
           "^[0-9a-f]+ (V DW\\.ref\\.|C ___asan_|B __odr_asan_gen_)")
      message(SEND_ERROR "${object} also exports: ${symbol}")
    endif()
  endforeach()
  if(NOT found)
    message(SEND_ERROR "${object} does not export ${table}")
  endif()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked LESS 3)
  message(FATAL_ERROR "only ${checked} kernel objects in \"${OBJECTS}\"")
endif()
